-- The captures and the other queues are dropped before; weir init --down does all of it, with the schema and its routines.
drop table backfills, capture_queues, captures, failures, pulls, inbox, instance_changes, queues;
