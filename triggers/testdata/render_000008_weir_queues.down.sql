-- weir: queues. This drops what the up file created.

-- drop queue "events"
drop queue "events";
