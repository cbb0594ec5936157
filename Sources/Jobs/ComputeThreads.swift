/// Threads that may compute and wait: a task's share of them is a lane, whose priority may change while it runs.
public protocol ComputeThreads: Sendable {
  /// A lane for one task.
  func lane(at priority: Priority) -> any ComputeLane
}

/// Runs one task's jobs on shared threads: those of a higher priority first, first come first served within one.
public protocol ComputeLane: TaskExecutor {
  /// Orders what comes from now on by another priority.
  func move(to priority: Priority)
}
