public import Executors
public import Jobs

/// Lets the engine use a `ThreadPool` as its decode threads. Each task or worker has its own lane in the pool.
extension ThreadPool: ComputeThreads {
  public func lane(at priority: Priority) -> any TaskLane { lane(priority: priority.level) }

  public func workerLane(at priority: Priority) -> any WorkerLane {
    serialLane(priority: priority.level)
  }
}

extension ThreadPool.Lane: ComputeLane {
  public func move(to priority: Priority) { setPriority(priority.level) }
}

extension ThreadPool.SerialLane: ComputeLane {
  public func move(to priority: Priority) { setPriority(priority.level) }
}

extension Priority {
  fileprivate var level: UInt8 { UInt8(rawValue) }
}
