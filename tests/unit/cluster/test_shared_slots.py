"""One pool of slots for several control planes: no slot is two jobs', in whatever order things are read and written."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from app.cluster.ports import Offer
from app.cluster.shared_slots import decide, pool_of_all
from app.model.plan import Slot
from app.scheduler.arbiter import Why
from app.scheduler.giving import Giving
from app.scheduler.slot_ledger import Ask, Entry, Holding, SlotClaim, SlotGrant, may_hold, usable

A, B, C = (Slot(f"host-{number}", "host") for number in range(3))
WANTS = Ask(desired=3, minimal=1)


def grant(
    version: int, *slots: Slot, based_on: int = 0, withdrawn: frozenset[str] = frozenset()
) -> SlotGrant:
    return SlotGrant("a", version, based_on, slots, withdrawn)


def claim(seq: int, seen: int, *slots: Slot) -> SlotClaim:
    return SlotClaim("a", seq, seen, frozenset(slot.id for slot in slots), WANTS)


def test_what_is_given_back_under_the_grant_in_force_is_free() -> None:
    entry = Entry(claim(4, 2, A), grant(2, A, B))
    assert may_hold(entry) == {A.id}
    assert usable(entry) == (A,)


def test_of_a_grant_that_was_not_seen_everything_counts() -> None:
    entry = Entry(claim(4, 1, A, B), grant(3, B, withdrawn=frozenset({C.id})))
    assert may_hold(entry) == {A.id, B.id, C.id}
    assert usable(entry) == (B,)


def test_what_was_given_back_is_not_taken_from_a_grant_that_does_not_know_it() -> None:
    holding = Holding.take_up("a", Entry(claim(1, 1, A, B), grant(1, A, B)), [A.id, B.id])
    holding.claim(WANTS)
    assert holding.give_back([B.id])
    assert holding.learn(grant(2, A, B, C, based_on=2))
    assert holding.slots == (A, C)
    assert holding.claim(WANTS).holds == {A.id, C.id}
    assert holding.learn(grant(3, A, B, C, based_on=3)), (
        "the arbiter heard of it, and gives the slot once more"
    )
    assert holding.slots == (A, B, C)


def test_what_is_withdrawn_is_claimed_until_the_job_is_without_it() -> None:
    holding = Holding.take_up("a", Entry(claim(1, 1, A, B), grant(1, A, B)), [A.id, B.id])
    assert holding.learn(grant(2, A, withdrawn=frozenset({B.id})))
    assert holding.slots == (A,)
    assert holding.claim(WANTS).holds == {A.id, B.id}
    holding.is_without([B.id])
    assert holding.claim(WANTS).holds == {A.id}


def test_an_older_grant_says_nothing() -> None:
    holding = Holding.take_up("a", Entry(claim(1, 2, A), grant(2, A)), [A.id])
    assert not holding.learn(grant(1, A, B))
    assert holding.slots == (A,)


def test_a_new_owner_does_not_take_what_was_given_back_before_it() -> None:
    holding = Holding.take_up("a", Entry(claim(3, 1, A), grant(1, A, B)), [A.id])
    assert holding.slots == (A,)
    assert not holding.learn(grant(1, A, B))
    assert holding.slots == (A,)


def test_a_slot_that_is_not_offered_any_more_is_lost_or_its_jobs_until_it_is_given_back() -> None:
    entry = Entry(claim(1, 1, A, B), grant(1, A, B))
    offer = Offer((("host", 1),))
    (lost,) = decide([entry], offer, now_ms=0, holding_ms=0, outlasts=False).grants
    assert (lost.slots, lost.withdrawn, lost.version) == ((A,), {B.id}, 2)
    assert pool_of_all([entry], offer, holding_ms=0, outlasts=True).total == 2
    again = Entry(entry.claim, lost)
    back = Offer((("host", 3),))
    pool = pool_of_all([again], back, holding_ms=0, outlasts=False)
    assert (pool.total, pool.free) == (2, 1), "its job may be using it still"


def test_a_job_that_gets_nothing_is_told_why() -> None:
    waits = SlotClaim("b", 1, 0, frozenset(), Ask(desired=2, minimal=2))
    runs = Entry(replace(claim(1, 1, A), ask=Ask(1, 1, Giving(running=True))), grant(1, A))
    told = {one.job_id: one for one in decide_on([runs, Entry(waits)], Offer((("host", 1),)))}
    assert (told["b"].version, told["b"].slots) == (1, ())
    assert told["b"].verdict is not None and told["b"].verdict.why is Why.NO_ROOM
    seen = Entry(replace(waits, seq=2, seen=1), told["b"])
    assert decide_on([Entry(runs.claim, told["a"]), seen], Offer((("host", 1),))) == []


def decide_on(entries: list[Entry], offer: Offer) -> list[SlotGrant]:
    return list(decide(entries, offer, now_ms=0, holding_ms=0, outlasts=False).grants)


def test_while_nothing_can_be_seen_nothing_is_granted_and_nothing_taken() -> None:
    runs = Entry(replace(claim(1, 1, A), ask=replace(WANTS, giving=Giving(running=True))), grant(1, A))
    # Its owner has just started it, and the claim does not say so yet.
    starts = Entry(SlotClaim("b", 1, 1, frozenset({B.id}), WANTS), SlotGrant("b", 1, 0, (B,)))
    waits = Entry(SlotClaim("c", 1, 0, frozenset(), WANTS))
    for offer in (Offer((("host", 3),), suspended=True), Offer((), suspended=True)):
        found = decide([runs, starts, waits], offer, now_ms=0, holding_ms=0, outlasts=False)
        assert (found.grants, found.next_review_ms) == ((), None)


# -- interleavings


@dataclass
class Owner:
    """A process that owns a job, or did. ``told``: what the job is about to take, ``sent``: a claim on its way."""

    job: str
    epoch: int
    holding: Holding
    read: SlotGrant | None = None
    told: frozenset[str] | None = None
    sent: SlotClaim | None = None


@dataclass
class Arbiter:
    epoch: int
    read: list[Entry] | None = None


@dataclass
class World:
    """The records, and what is true: the slots in the durable state of each job."""

    rng: random.Random
    claims: dict[str, SlotClaim] = field(default_factory=dict)
    grants: dict[str, SlotGrant] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)
    epoch: int = 1
    states: dict[str, set[str]] = field(default_factory=dict)
    owners: list[Owner] = field(default_factory=list)
    arbiters: list[Arbiter] = field(default_factory=list)
    managers: dict[str, int] = field(default_factory=lambda: {"host": 3, "host-2": 2})
    away: set[str] = field(default_factory=set)
    asks: dict[str, Ask] = field(default_factory=dict)

    def entries(self) -> list[Entry]:
        return [Entry(claim, self.grants.get(job)) for job, claim in self.claims.items()]

    def entry(self, job: str) -> Entry | None:
        return Entry(self.claims[job], self.grants.get(job)) if job in self.claims else None

    def owns(self, owner: Owner) -> bool:
        return self.leases[owner.job] == owner.epoch

    def take_over(self, job: str) -> None:
        self.leases[job] = epoch = self.leases.get(job, 0) + 1
        state = self.states.setdefault(job, set())
        self.owners.append(Owner(job, epoch, Holding.take_up(job, self.entry(job), state)))

    def offer(self) -> Offer:
        return Offer(tuple((name, n) for name, n in self.managers.items() if name not in self.away))

    # What an owner does

    def read_grant(self, owner: Owner) -> None:
        owner.read = self.grants.get(owner.job)

    def learn(self, owner: Owner) -> None:
        if owner.read is not None:
            owner.holding.learn(owner.read)

    def tell(self, owner: Owner) -> None:
        if owner.told is None:
            owner.told = frozenset(slot.id for slot in owner.holding.slots)

    def commit(self, owner: Owner) -> None:
        if owner.told is not None and self.owns(owner):
            self.states[owner.job] = set(owner.told)
        owner.told = None

    def settle(self, owner: Owner) -> None:
        self.commit(owner)
        self.tell(owner)
        fading = set(owner.holding.fading)
        self.commit(owner)
        if self.owns(owner):
            owner.holding.is_without(fading - self.states[owner.job])

    def give_back(self, owner: Owner) -> None:
        self.commit(owner)
        state = self.states[owner.job]
        if self.owns(owner) and state:
            back = set(self.rng.sample(sorted(state), self.rng.randint(1, len(state))))
            state -= back
            owner.holding.give_back(back)

    def send(self, owner: Owner) -> None:
        if owner.sent is None:
            ask = self.asks[owner.job] = Ask(self.rng.randint(1, 5), 1)
            owner.sent = owner.holding.claim(ask)

    def arrive(self, owner: Owner) -> None:
        if owner.sent is not None and self.owns(owner) and self.rng.random() < 0.9:
            self.claims[owner.job] = owner.sent
        owner.sent = None

    # What an arbiter does

    def look(self, arbiter: Arbiter) -> None:
        # What it has read before is of use only as long as it has not decided by it.
        arbiter.read = self.entries()

    def decide(self, arbiter: Arbiter) -> None:
        if arbiter.read is None:
            return
        offer = replace(self.offer(), suspended=self.rng.random() < 0.1)
        decision = decide(arbiter.read, offer, now_ms=0, holding_ms=0, outlasts=False)
        arbiter.read = None
        if arbiter.epoch == self.epoch:
            self.grants.update((one.job_id, one) for one in decision.grants)

    def new_arbiter(self) -> None:
        self.epoch += 1
        self.arbiters.append(Arbiter(self.epoch))

    def cycle(self, owner: Owner) -> None:
        """Much of what it does by itself, as far as it comes."""
        for deed in (
            self.arrive,
            self.read_grant,
            self.learn,
            self.tell,
            self.commit,
            self.give_back,
            self.send,
        ):
            if self.rng.random() < 0.7:
                deed(owner)

    def step(self) -> None:
        rng = self.rng
        chance = rng.random()
        if chance < 0.03:
            self.take_over(rng.choice(sorted(self.leases)))
        elif chance < 0.06:
            self.new_arbiter()
        elif chance < 0.14:
            self.away ^= {rng.choice(sorted(self.managers))}
        elif chance < 0.3:
            rng.choice((self.look, self.decide))(rng.choice(self.arbiters[-2:]))
        elif chance < 0.4:
            self.look(self.arbiters[-1])
            self.decide(self.arbiters[-1])
        elif chance < 0.7:
            self.cycle(rng.choice(self.owners[-4:]))
        else:
            deeds = (self.read_grant, self.learn, self.tell, self.commit, self.settle, self.send, self.arrive)
            rng.choice((*deeds, self.give_back))(rng.choice(self.owners[-6:]))

    def held_twice(self) -> set[str]:
        seen, twice = set[str](), set[str]()
        for state in self.states.values():
            twice |= seen & state
            seen |= state
        return twice

    def rest(self) -> None:
        """Nothing goes wrong any more, and everybody takes what he gets."""
        self.away.clear()
        self.new_arbiter()
        newest = {owner.job: owner for owner in self.owners if self.owns(owner)}
        for _ in range(12):
            for owner in newest.values():
                self.read_grant(owner)
                self.learn(owner)
                self.settle(owner)
                owner.sent = owner.holding.claim(Ask(5, 1))
                self.claims[owner.job], owner.sent = owner.sent, None
            entries = self.entries()
            decision = decide(entries, self.offer(), now_ms=0, holding_ms=0, outlasts=False)
            self.grants.update((one.job_id, one) for one in decision.grants)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_no_slot_is_two_jobs_and_none_is_idle_in_the_end(seed: int) -> None:
    world = World(random.Random(seed))
    world.new_arbiter()
    for job in "abc":
        world.take_over(job)
    for number in range(400):
        world.step()
        assert not world.held_twice(), f"step {number}"
    world.rest()
    assert not world.held_twice()
    assert sum(len(state) for state in world.states.values()) == 5
