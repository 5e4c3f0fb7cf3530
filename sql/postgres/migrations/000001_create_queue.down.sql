-- The schema itself, its routines and the captures' functions are dropped by weir init --down, which calls this last.
drop table backfills, capture_queues, captures, failures, pulls, inbox, instance_changes, queues;
