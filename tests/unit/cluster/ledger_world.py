"""A world of claims, grants and jobs in which everything is read and written in any order, late, or not at all."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from app.cluster.ports import Offer
from app.cluster.shared_slots import decide
from app.scheduler.slot_ledger import Ask, Entry, Holding, SlotClaim, SlotGrant

STEPS = 400
SLOTS = 5
PACES = (0.02, 0.3, 0.95)


@dataclass
class Owner:
    """A process that owns a job, or did. ``told``: what the job is about to take, ``sent``: a claim on its way.

    ``talks`` and ``acts``: how likely it does something of each kind in its turn. So there are some that say at once
    what they hold, and take their time with what they do.
    """

    job: str
    epoch: int
    holding: Holding
    talks: float
    acts: float
    read: SlotGrant | None = None
    told: frozenset[str] | None = None
    sent: SlotClaim | None = None


@dataclass
class Arbiter:
    epoch: int
    read: list[Entry] | None = None


@dataclass
class World:
    """The records, and what is true: the slots in the durable state of each job.

    ``outlasts``: the slots are those of servers on one host (the embedded kind), and not of workers that may be lost.
    """

    rng: random.Random
    outlasts: bool = False
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
        holding = Holding.take_up(job, self.entry(job), state)
        talks, acts = self.rng.choice(PACES), self.rng.choice(PACES)
        self.owners.append(Owner(job, epoch, holding, talks, acts))

    def offer(self) -> Offer:
        there = tuple((name, n) for name, n in self.managers.items() if name not in self.away)
        return Offer(there, outlasts=self.outlasts)

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
        offer = self.offer()
        if not self.outlasts:
            offer = replace(offer, unreachable=self.rng.random() < 0.1)
        decision = decide(arbiter.read, offer, now_ms=0, holding_ms=0)
        arbiter.read = None
        if self.is_arbiter(arbiter):
            self.grants.update((one.job_id, one) for one in decision.grants)

    def is_arbiter(self, arbiter: Arbiter) -> bool:
        return arbiter.epoch == self.epoch

    def new_arbiter(self) -> None:
        self.epoch += 1
        self.arbiters.append(Arbiter(self.epoch))

    def turn(self, owner: Owner) -> None:
        """What it does by itself, as far as it comes."""
        talk, act = owner.talks, owner.acts
        for deed, pace in (
            (self.arrive, talk),
            (self.read_grant, talk),
            (self.learn, talk),
            (self.tell, act),
            (self.commit, act),
            (self.settle, act / 3),
            (self.give_back, act / 3),
            (self.send, talk),
        ):
            if self.rng.random() < pace:
                deed(owner)

    def some_owner(self) -> Owner:
        """One that owns a job most of the time, else one that did."""
        job = self.rng.choice(sorted(self.leases))
        owners = [owner for owner in self.owners if owner.job == job]
        return owners[-1] if self.rng.random() < 0.85 else self.rng.choice(owners[-3:])

    def step(self) -> None:
        rng = self.rng
        chance = rng.random()
        if chance < 0.02:
            self.take_over(rng.choice(sorted(self.leases)))
        elif chance < 0.04:
            self.new_arbiter()
        elif chance < 0.12:
            self.away ^= {rng.choice(sorted(self.managers))}
        elif chance < 0.24:
            rng.choice((self.look, self.decide))(rng.choice(self.arbiters[-2:]))
        elif chance < 0.5:
            self.look(self.arbiters[-1])
            self.decide(self.arbiters[-1])
        else:
            self.turn(self.some_owner())

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
            decision = decide(entries, self.offer(), now_ms=0, holding_ms=0)
            self.grants.update((one.job_id, one) for one in decision.grants)


def complaint(seed: int, *, outlasts: bool) -> str | None:
    """What goes wrong in the life of a world: a slot is two jobs', or idle in the end. None: nothing."""
    world = World(random.Random(seed), outlasts)
    world.new_arbiter()
    for job in "abc":
        world.take_over(job)
    for number in range(STEPS):
        world.step()
        if twice := world.held_twice():
            return f"{twice} held twice in step {number}"
    world.rest()
    if twice := world.held_twice():
        return f"{twice} held twice at rest"
    held = sum(len(state) for state in world.states.values())
    return None if held == SLOTS else f"{held} of {SLOTS} slots are held in the end"
