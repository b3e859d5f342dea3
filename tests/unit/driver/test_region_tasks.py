"""Tasks of a region's run are counted by stage: each once, with none that Spark skips."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.driver.batch.tasks import GroupTasks, StageTasks


@dataclass
class Stage:
    """What Spark's status tracker says of the latest attempt of a stage."""

    tasks: int
    done: int = 0
    submitted: bool = True

    def numTasks(self) -> int:
        return self.tasks

    def numCompletedTasks(self) -> int:
        return self.done

    def submissionTime(self) -> int:
        return 1 if self.submitted else 0


@dataclass
class Job:
    stages: list[int]
    state: str = "RUNNING"

    def status(self) -> str:
        return self.state

    def stageIds(self) -> list[int]:
        return self.stages


@dataclass
class Tracker:
    """Stands for JavaSparkStatusTracker. ``asked`` has the jobs that were asked for."""

    jobs: dict[int, Job]
    stages: dict[int, Stage]
    asked: list[int] = field(default_factory=list)

    def getJobIdsForGroup(self, group: str) -> list[int]:
        return list(self.jobs) if group == "ours" else []

    def getJobInfo(self, job_id: int) -> Job | None:
        self.asked.append(job_id)
        return self.jobs[job_id]

    def getStageInfo(self, stage_id: int) -> Stage | None:
        return self.stages.get(stage_id)


def test_only_news_are_told() -> None:
    tracker = Tracker({1: Job([1])}, {1: Stage(4)})
    tasks = GroupTasks(tracker, "ours")
    assert tasks.news() == (0, 4)
    assert tasks.news() is None
    tracker.stages[1].done = 3
    assert tasks.news() == (3, 4)
    assert tasks.news() is None
    assert GroupTasks(tracker, "another").news() is None


def test_what_becomes_known_later_is_added() -> None:
    tracker = Tracker({1: Job([1])}, {1: Stage(4, done=4)})
    tasks = GroupTasks(tracker, "ours")
    assert tasks.news() == (4, 4)
    tracker.jobs[2], tracker.stages[2] = Job([2]), Stage(6, done=1)
    assert tasks.news() == (5, 10)


def test_a_stage_of_two_jobs_counts_once_and_one_that_was_not_submitted_not_at_all() -> None:
    # The second job reads what stage 1 wrote, which it knows as stage 3 and skips; stage 9 is not known any more.
    stages = {1: Stage(4, done=2), 2: Stage(5, done=1), 3: Stage(4, submitted=False)}
    tracker = Tracker({1: Job([1]), 2: Job([1, 3, 2, 9])}, stages)
    assert GroupTasks(tracker, "ours").news() == (3, 9)


def test_a_job_that_is_over_is_not_asked_for_again_and_stays_counted() -> None:
    tracker = Tracker({1: Job([1], "SUCCEEDED"), 2: Job([2])}, {1: Stage(4, done=4), 2: Stage(2)})
    tasks = GroupTasks(tracker, "ours")
    assert tasks.news() == (4, 6)
    del tracker.stages[1]
    tracker.stages[2].done = 1
    assert tasks.news() == (5, 6)
    assert tracker.asked == [1, 2, 2]


def test_what_adaptive_execution_gives_up_is_not_waited_for() -> None:
    tracker = Tracker({1: Job([1])}, {1: Stage(10, done=2)})
    tasks = GroupTasks(tracker, "ours")
    assert tasks.news() == (2, 10)
    tracker.jobs[1].state = "FAILED"
    assert tasks.news() == (2, 2)


def test_a_stage_that_repeats_lost_parts_keeps_the_others_as_done() -> None:
    stages = StageTasks()
    stages.see(1, 10, 10, over=False)
    assert stages.counts == (10, 10)
    # The next attempt has only the lost parts as tasks.
    stages.see(1, 3, 1, over=False)
    assert stages.counts == (8, 10)
    stages.see(1, 3, 3, over=False)
    assert stages.counts == (10, 10)


def test_copies_of_slow_tasks_do_not_make_more_than_all() -> None:
    stages = StageTasks()
    stages.see(1, 4, 5, over=False)
    assert stages.counts == (4, 4)
