/// Threads that may compute and wait. A task's or a worker's share of them is a lane, whose priority may change meanwhile.
public protocol ComputeThreads: Sendable {
  /// A lane for one task.
  func lane(at priority: Priority) -> any TaskLane
  /// A lane for one actor.
  func workerLane(at priority: Priority) -> any WorkerLane
}

/// Runs its jobs on shared threads: those of a higher priority first, first come first served within one.
public protocol ComputeLane: Sendable {
  /// Orders what comes from now on by another priority.
  func move(to priority: Priority)
}

/// A lane that a task prefers (SE-0417).
public typealias TaskLane = ComputeLane & TaskExecutor

/// A lane that an actor runs on (SE-0392): one of its jobs at a time.
public typealias WorkerLane = ComputeLane & SerialExecutor
