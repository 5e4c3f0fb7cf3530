/*
The pull protocol, as a model for Spin: one row of a source, two writers, two pullers, one target with a ledger.

	spin -a pull.pml && gcc -O2 -w -DSAFETY -o pan pan.c && ./pan -m100000 -w24

README.md beside this file says what is modelled, what is left out, and what the checker answers.

Sizes, with -D at spin:
	WRITES     transactions of the writers
	BLIND      of these, how many may tag without seeing the row that the queue has of the other type, as a fold and a
	           user do who come in the same moment
	CRASHES    pullers that die
	LOST       shipments whose commit has no answer; it may have happened or not
	OUTAGES    shipments that fail for certain
	EXPIRED    leases that run out while their holder lives
ONLY=n checks property In alone.

Bugs to put in, one at a time:
	KEEP_PULL   step 2 of tagging: the new version stays in the pull of the old one
	NO_WAIT     step 3 of tagging: the new version does not wait for the pull of the old one
	NO_OTHER    claim does not look whether the row's other type is in flight
	NO_EARLIER  claim does not look whether the row's other type is older and claimable as well
	NO_LEDGER   recovery does not ask the ledger, but takes it that the pull committed
	NO_REVOKE   recovery asks the ledger, but enters no revocation
	DIRTY_READ  rows are read before they are committed
*/

#ifndef WRITES
#define WRITES 2
#endif
#ifndef BLIND
#define BLIND 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LOST
#define LOST 1
#endif
#ifndef OUTAGES
#define OUTAGES 1
#endif
#ifndef EXPIRED
#define EXPIRED 1
#endif

#if !defined(ONLY) || ONLY == 1
#define I1(c) assert(c)
#else
#define I1(c) skip
#endif
#if !defined(ONLY) || ONLY == 2
#define I2(c) assert(c)
#else
#define I2(c) skip
#endif
#if !defined(ONLY) || ONLY == 3
#define I3(c) assert(c)
#else
#define I3(c) skip
#endif
#if !defined(ONLY) || ONLY == 4
#define I4(c) assert(c)
#else
#define I4(c) skip
#endif
#if !defined(ONLY) || ONLY == 5
#define I5(c) assert(c)
#else
#define I5(c) skip
#endif

/* Ids of pulls are used again when nothing names them any more; so many are never in use at once, or the model stands still. */
#define PULLS 6

/* A pull at the source, and in the target's ledger. */
#define NONE      0
#define CLAIMED   1
#define SETTLED   2
#define RELEASED  3
#define COMMITTED 1
#define REVOKED   2

/* The queue: a row for each type of change, 0 inserted or updated, 1 deleted. */
typedef Change {
	bool on;
	byte pull;  /* 0: none */
	byte waits; /* waits_for_pull_guid; 0: none */
	byte version  /* for changed_on: later is greater */
}
Change queue[2];
byte state[PULLS + 1];
byte ledger[PULLS + 1];
bool applied[PULLS + 1]; /* the pull had its effect */
byte held[2];            /* the pull that a puller has in hand */

byte source; /* the version that is committed at the source */
byte target; /* the version at the target */
byte latest; /* the latest version, committed or not */
byte common = 1; /* bits of the versions that committed */

/* The transaction that holds the row: its change's type and whether it holds the queue's row of the other type, too. */
bool locked;
byte locked_type;
bool locked_both;

byte writes = WRITES;
byte writers = 2;
byte blind = BLIND;
byte crashes = CRASHES;
byte lost = LOST;
byte outages = OUTAGES;
byte expired = EXPIRED;

#define live(p)      ((p) != 0 && state[p] == CLAIMED)
#define pull_of(t)   (queue[t].pull != 0 -> queue[t].pull : queue[t].waits)
#define is_locked(t) (locked && (locked_both || locked_type == (t)))
#define names(p)     (queue[0].on && queue[0].pull == (p) || queue[1].on && queue[1].pull == (p))
#define waits_for(p) (queue[0].on && queue[0].waits == (p) || queue[1].on && queue[1].waits == (p))
#define is_free(p)   (state[p] == NONE && held[0] != (p) && held[1] != (p) && !names(p) && !waits_for(p))

#ifdef NO_OTHER
#define other_in_flight(o) false
#else
#define other_in_flight(o) (live(queue[o].pull) || live(queue[o].waits))
#endif
#ifdef NO_EARLIER
#define other_is_older(t) false
#else
#define other_is_older(t) (queue[1 - (t)].pull == 0 && queue[1 - (t)].version < queue[t].version)
#endif
#define claimable(t) (queue[t].on && queue[t].pull == 0 && !is_locked(t) && !live(queue[t].waits) \
	&& !(queue[1 - (t)].on && (other_in_flight(1 - (t)) || other_is_older(t))))

/* Somebody must finish it: nobody has it in hand, its lease ran out, or rows of it were locked when it was finished. */
#define is_held(p)     (held[0] == (p) || held[1] == (p))
#define rows_free(p)   (!(queue[0].on && queue[0].pull == (p) && is_locked(0)) && !(queue[1].on && queue[1].pull == (p) && is_locked(1)))
#define unfinished(p)  (state[p] == CLAIMED && (!is_held(p) || expired > 0) || (state[p] == SETTLED || state[p] == RELEASED) && !is_held(p) && rows_free(p))

#define drained (writers == 0 && !queue[0].on && !queue[1].on \
	&& state[1] == NONE && state[2] == NONE && state[3] == NONE && state[4] == NONE && state[5] == NONE && state[6] == NONE)

inline clear(t) {
	queue[t].on = false;
	queue[t].pull = 0;
	queue[t].waits = 0;
	queue[t].version = 0
}

inline nothing_lost() {
	I1(target == source || queue[0].on || queue[1].on)
}

/* A transaction: it tags under the row's lock, and commits or rolls back later. What it wrote is seen when it commits. */
proctype Writer() {
	byte type, mine, one, other, wait;
	bool sees;
	do
	:: atomic {
		writes > 0 && !locked ->
			writes--;
			latest++;
			mine = latest;
			if
			:: type = 0
			:: type = 1
			fi;
			sees = true;
			if
			:: blind > 0 -> blind--; sees = false
			:: true
			fi;
			locked = true;
			locked_type = type;
			locked_both = sees;
			one = (queue[type].on -> pull_of(type) : 0);
			other = (sees && queue[1 - type].on -> pull_of(1 - type) : 0);
			if
			:: one == 0 -> wait = other
			:: one != 0 && other == 0 -> wait = one
			:: one != 0 && other != 0 && live(one) -> wait = one
			:: one != 0 && other != 0 && !live(one) -> wait = other
			fi;
#ifdef NO_WAIT
			wait = 0;
#endif
			one = 0;
			other = 0
		}
		if
		:: atomic {
			true -> /* commit */
				source = mine;
				common = common | (1 << mine);
				if
				:: sees -> clear(1 - type)
				:: else
				fi;
				queue[type].on = true;
#ifndef KEEP_PULL
				queue[type].pull = 0;
#endif
				queue[type].waits = wait;
				queue[type].version = mine;
				nothing_lost()
			}
		:: true /* roll back */
		fi;
		atomic {
			locked = false;
			locked_type = 0;
			locked_both = false;
			wait = 0;
			mine = 0;
			type = 0;
			sees = false
		}
	:: atomic { writes == 0 -> writers--; break }
	od
}

/* Deletes or gives back the changes that still carry the pull, but for those that a transaction holds. */
inline settle(p) {
	I5(state[p] != RELEASED);
	if
	:: state[p] == NONE
	:: else ->
		state[p] = SETTLED;
		if
		:: queue[0].on && queue[0].pull == p && !is_locked(0) -> clear(0)
		:: else
		fi;
		if
		:: queue[1].on && queue[1].pull == p && !is_locked(1) -> clear(1)
		:: else
		fi;
		if
		:: !names(p) -> state[p] = NONE
		:: else
		fi;
		nothing_lost()
	fi
}

inline release(p) {
	I5(state[p] != SETTLED);
	if
	:: state[p] == NONE
	:: else ->
		state[p] = RELEASED;
		if
		:: queue[0].on && queue[0].pull == p && !is_locked(0) -> queue[0].pull = 0
		:: else
		fi;
		if
		:: queue[1].on && queue[1].pull == p && !is_locked(1) -> queue[1].pull = 0
		:: else
		fi;
		if
		:: !names(p) -> state[p] = NONE
		:: else
		fi
	fi
}

/* The target's transaction: the ledger lets a pull in once. */
inline apply(p, read) {
	ledger[p] = COMMITTED;
	I5(!applied[p]);
	applied[p] = true;
	I2(common & (1 << read));
	I3(read >= target);
	target = read
}

/* What one statement claims: the row of one type, or both. */
#define takes(t) (what == 2 || what == (t))

inline claim() {
	pull = 1;
	do
	:: is_free(pull) -> break
	:: else -> pull++
	od;
	ledger[pull] = NONE;
	applied[pull] = false;
	held[me] = pull;
	I4(state[1] != CLAIMED && state[2] != CLAIMED && state[3] != CLAIMED
	   && state[4] != CLAIMED && state[5] != CLAIMED && state[6] != CLAIMED);
	I4(what != 2);
	state[pull] = CLAIMED;
	if
	:: takes(0) -> queue[0].pull = pull; queue[0].waits = 0
	:: else
	fi;
	if
	:: takes(1) -> queue[1].pull = pull; queue[1].waits = 0
	:: else
	fi
}

proctype Puller(byte me) {
	byte pull, read, what;
	do
	:: atomic { /* nothing is left, and the target has all */
		drained ->
			I1(target == source);
			break
	}
	:: atomic { /* recover */
		unfinished(1) || unfinished(2) || unfinished(3) || unfinished(4) || unfinished(5) || unfinished(6) ->
			if
			:: unfinished(1) -> pull = 1
			:: unfinished(2) -> pull = 2
			:: unfinished(3) -> pull = 3
			:: unfinished(4) -> pull = 4
			:: unfinished(5) -> pull = 5
			:: unfinished(6) -> pull = 6
			fi;
			if
			:: state[pull] == CLAIMED && is_held(pull) -> expired--
			:: else
			fi;
			held[me] = pull;
			if
			:: state[pull] == SETTLED -> goto settling
			:: state[pull] == RELEASED -> goto releasing
			:: state[pull] == CLAIMED -> goto finishing
			fi
	}
	:: atomic { /* claim, one statement */
		claimable(0) || claimable(1) ->
			if
			:: claimable(0) -> what = 0
			:: claimable(1) -> what = 1
			:: claimable(0) && claimable(1) -> what = 2
			fi;
			claim();
			what = 0
		};
		/* read */
		if
#ifdef DIRTY_READ
		:: read = latest
#else
		:: read = source
#endif
		:: atomic { crashes > 0 -> crashes--; goto idle }
		fi;
		/* ship */
		if
		:: atomic {
			ledger[pull] == NONE -> apply(pull, read);
			if
			:: goto settling
			:: lost > 0 -> lost--; goto finishing
			fi
		}
		:: atomic { ledger[pull] != NONE -> goto idle } /* revoked: another puller recovered it */
		:: atomic { lost > 0 -> lost--; goto finishing }
		:: atomic { outages > 0 -> outages--; goto releasing }
		:: atomic { crashes > 0 -> crashes--; goto idle }
		fi;

finishing: /* the ledger decides */
		read = 0;
		if
#ifdef NO_LEDGER
		:: goto settling
#else
		:: atomic { ledger[pull] == COMMITTED -> goto settling }
#ifdef NO_REVOKE
		:: atomic { ledger[pull] != COMMITTED -> goto releasing }
#else
		:: atomic { ledger[pull] != COMMITTED -> ledger[pull] = REVOKED; goto releasing }
#endif
#endif
		:: atomic { crashes > 0 -> crashes--; goto idle }
		fi;

settling:
		read = 0;
		if
		:: atomic {
			true -> settle(pull);
			if
			:: state[pull] == NONE -> goto forgetting
			:: else -> goto idle
			fi
		}
		:: atomic { crashes > 0 -> crashes--; goto idle }
		fi;

forgetting: /* the source does not know the pull any more: the ledger need not, if it committed */
		atomic {
			if
			:: ledger[pull] == COMMITTED -> ledger[pull] = NONE
			:: else
			fi;
			goto idle
		}

releasing:
		read = 0;
		if
		:: atomic { true -> release(pull); goto idle }
		:: atomic { crashes > 0 -> crashes--; goto idle }
		fi;

idle:
		atomic {
			pull = 0;
			read = 0;
			held[me] = 0
		}
	od
}

init {
	atomic {
		run Writer();
		run Writer();
		run Puller(0);
		run Puller(1)
	}
}
