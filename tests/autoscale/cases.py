"""The two published cases on the model: who is submitted when, and a sample each second."""

from __future__ import annotations

from autoscale.figures import Record, Sample
from autoscale.model import SERVER, SERVICE, TICK_S, TRAINER, ModelCluster, Owner

# 133 nodes, 2,344 CPUs: the sizes are not published, the sum is; 2.15 % are the system's own
SIZES = [16_000] * 106 + [24_000] * 27
BASE = 379
NODE_CPUS = sum(SIZES)
TRAINER_CPU, SERVER_CPU, MASTER_CPU, SERVICE_CPU = 5000, 4000, 1000, 3000
SERVERS, LEAST, MOST = 10, 2, 60
END = {1: 500.0, 2: 700.0}
# case 2: seconds after the first job -> replicas of nginx
STEPS = {90.0: 300, 180.0: 200, 270.0: 100, 360.0: 200, 450.0: 300, 540.0: 400}


def arrivals(case: int) -> list[float]:
    """When each job is submitted."""
    return [10.0 * number for number in range(20)] if case == 1 else [5.0 * number for number in range(6)]


def submit(cluster: ModelCluster, job: int, case: int) -> None:
    cluster.add(Owner(f"servers-{job}", SERVER_CPU, SERVER, SERVERS))
    cluster.add(Owner(f"master-{job}", MASTER_CPU, SERVER, 1))
    fixed = MOST if case == 1 else 15
    wanted, most = (LEAST if case == 1 else 15, MOST) if cluster.elastic else (fixed, 0)
    cluster.add(Owner(f"job-{job}", TRAINER_CPU, TRAINER, wanted, LEAST, most))


def observe(cluster: ModelCluster, record: Record, begin: float, case: int) -> None:
    count = len(arrivals(case))
    there = [f"job-{job}" in cluster.owners for job in range(count)]
    parts = [("job", TRAINER_CPU), ("servers", SERVER_CPU), ("master", MASTER_CPU)]
    trainers = [cluster.running(f"job-{job}") if there[job] else 0 for job in range(count)]
    shares, pods = [], {}
    for job in range(count):
        cpus = [cpu * cluster.running(f"{kind}-{job}") for kind, cpu in parts if there[job]]
        shares.append(100 * sum(cpus) / NODE_CPUS)
        pods[job] = sum(len(cluster.owners[f"{kind}-{job}"].pods) for kind, _ in parts if there[job])
    service = cluster.owners.get("nginx")
    running = cluster.running("nginx") if service else 0
    used = BASE * len(SIZES) + SERVICE_CPU * running
    states = ["" if not there[job] else "running" if trainers[job] else "pending" for job in range(count)]
    may = any(there[job] and cluster.owners[f"job-{job}"].wanted < MOST for job in range(count))
    sample = Sample(
        seconds=cluster.now - begin,
        utilisation=100 * used / NODE_CPUS + sum(shares),
        trainers=trainers,
        shares=shares,
        states=states,
        service=running,
        wanted=service.wanted if service else 0,
        is_full=not may or max(cluster.free) < TRAINER_CPU,
    )
    record.observe(sample, pods)


def play(case: int, *, elastic: bool, preempts: bool = True) -> Record:
    """Run a case on the model and return its record."""
    cluster = ModelCluster(SIZES, BASE, elastic=elastic, preempts=preempts)
    record = Record(case, elastic)
    if case == 2:
        cluster.add(Owner("nginx", SERVICE_CPU, SERVICE, 400))
        while cluster.now < 35:
            cluster.tick()
    begin = cluster.now
    coming = list(enumerate(arrivals(case)))
    steps = dict(STEPS) if case == 2 else {}
    ticks = 0
    while cluster.now - begin < END[case]:
        while coming and cluster.now - begin >= coming[0][1]:
            submit(cluster, coming.pop(0)[0], case)
        for moment in [moment for moment in steps if cluster.now - begin >= moment]:
            record.steps.append((moment, cluster.owners["nginx"].wanted, steps[moment]))
            cluster.owners["nginx"].wanted = steps.pop(moment)
        if ticks % round(1 / TICK_S) == 0:
            observe(cluster, record, begin, case)
        cluster.tick()
        ticks += 1
    record.changes = [(now - begin, name, made.before, made.after, made.reason) for now, name, made in cluster.changes]
    return record
