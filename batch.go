package weir

// Encoding says how the fields of a [TableBatch]'s rows are written.
type Encoding string

// EncodingText is the neutral form, which every source can produce and every
// target reads: each field is the text that its column's [Kind] documents, Bytes
// are the bytes. Other encodings are engines' own, so that a pull between two
// databases of one engine need not decode its rows.
const EncodingText Encoding = "text"

// Field is one value of a row, nil for NULL. An empty value is not nil.
type Field = []byte

// Row is a row's fields, in the order of [TableBatch.Columns].
type Row []Field

// Item is one claimed change, and what its instance is now. No rows means that
// the instance is absent: the target deletes it. A capture that is no Set has
// at most one row.
type Item struct {
	Change Change
	// Key are the values of [Capture.Key], in EncodingText.
	Key  []Field
	Rows []Row
}

// TableBatch is what a pull ships to one table.
type TableBatch struct {
	Capture  *Capture
	Columns  []Column
	Encoding Encoding
	// Items has each key once.
	Items []Item
}

// Batch is what a pull ships, table by table, in one transaction. Bytes is the
// size of all fields.
type Batch struct {
	Tables []TableBatch
	Bytes  int64
}

// Counts returns the rows that the batch upserts and the keys that it deletes.
// A set that is shipped empty counts as a deleted key.
func (b *Batch) Counts() (upserts, deletes int) {
	for i := range b.Tables {
		for j := range b.Tables[i].Items {
			if n := len(b.Tables[i].Items[j].Rows); n > 0 {
				upserts += n
			} else {
				deletes++
			}
		}
	}
	return upserts, deletes
}

// Without returns the batch less the items at the given places. b itself is
// not changed.
func (b *Batch) Without(faults []Fault) *Batch {
	drop := make(map[[2]int]bool, len(faults))
	for _, f := range faults {
		drop[[2]int{f.Table, f.Item}] = true
	}
	out := &Batch{Bytes: b.Bytes}
	for i := range b.Tables {
		t := b.Tables[i]
		t.Items = nil
		for j := range b.Tables[i].Items {
			if !drop[[2]int{i, j}] {
				t.Items = append(t.Items, b.Tables[i].Items[j])
			}
		}
		if len(t.Items) > 0 {
			out.Tables = append(out.Tables, t)
		}
	}
	return out
}

// Fault names an item that cannot be shipped: Batch.Tables[Table].Items[Item].
type Fault struct {
	Table, Item int
	Err         *RowError
}
