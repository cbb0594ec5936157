/// Threads for code that computes or blocks. A task or a worker uses them through a lane. A lane is a queue
/// with a priority that can change.
package protocol ComputeThreads: Sendable {
  /// Returns a lane for one task.
  func lane(at priority: Priority) -> any TaskLane
  /// Returns a lane for one actor.
  func workerLane(at priority: Priority) -> any WorkerLane
}

/// Runs its work on the shared threads. Work with a higher priority runs first; equal priorities run in order
/// of arrival.
package protocol ComputeLane: Sendable {
  /// Changes the priority of work that is added from now on.
  func move(to priority: Priority)
}

/// A lane as a task executor preference (SE-0417).
package typealias TaskLane = ComputeLane & TaskExecutor

/// A lane as the executor of an actor (SE-0392). It runs one piece of work at a time.
package typealias WorkerLane = ComputeLane & SerialExecutor
