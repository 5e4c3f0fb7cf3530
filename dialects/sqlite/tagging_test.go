package sqlite

import (
	"testing"

	"github.com/weir-cdc/weir"
)

func TestThinLine(t *testing.T) {
	f := newFixture(t, "create table orders (id integer primary key, name text, price numeric)")
	f.plain("orders")
	s := newSink(t, weir.TargetOptions{})
	f.exec("insert into orders values (1, 'a', 1.5), (2, 'b', 2), (3, 'c', null)")
	f.exec("update orders set name = 'bb' where id = 2")
	f.exec("delete from orders where id = 3")
	want(t, f.queue(), "Instance Deleted 3", "Instance Inserted 1", "Instance Inserted 2")
	f.drain(s)
	want(t, dump(t, s.db, "orders", "id", "name", "price"), "integer 1, text 'a', real 1.5", "integer 2, text 'bb', integer 2")
	f.exec("update orders set id = 10 where id = 1")
	f.drain(s)
	want(t, s.strings("select id from orders order by id"), "2", "10")
	want(t, f.queue())
}
