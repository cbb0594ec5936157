package import Executors
package import Jobs

/// Lets the engine use a `ThreadPool` as its decode threads. Each task or worker has its own lane in the pool.
extension ThreadPool: ComputeThreads {
  package func lane(at priority: Priority) -> any TaskLane { lane(priority: priority.level) }

  package func workerLane(at priority: Priority) -> any WorkerLane {
    serialLane(priority: priority.level)
  }
}

extension ThreadPool.Lane: ComputeLane {
  package func move(to priority: Priority) { setPriority(priority.level) }
}

extension ThreadPool.SerialLane: ComputeLane {
  package func move(to priority: Priority) { setPriority(priority.level) }
}

extension Priority {
  fileprivate var level: UInt8 { UInt8(rawValue) }
}
