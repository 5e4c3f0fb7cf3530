-- weir: queues. Apply this in one transaction, with a lock time-out where the engine
-- has one: a trigger needs a short lock on its table.

-- create queue "events"
create queue "events";
enable "events";
