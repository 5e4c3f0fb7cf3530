-- weir: queues. This drops what the up file created.

-- not undone: create queue "events"
