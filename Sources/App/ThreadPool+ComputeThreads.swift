public import Executors
public import Jobs

/// The decode threads are the pool's; a task's or a worker's share of them is a lane.
extension ThreadPool: ComputeThreads {
  public func lane(at priority: Priority) -> any TaskLane { lane(priority: priority.level) }

  public func workerLane(at priority: Priority) -> any WorkerLane {
    serialLane(priority: priority.level)
  }
}

extension ThreadPool.Lane: ComputeLane {
  public func move(to priority: Priority) { move(to: priority.level) }
}

extension ThreadPool.SerialLane: ComputeLane {
  public func move(to priority: Priority) { move(to: priority.level) }
}

extension Priority {
  fileprivate var level: UInt8 { UInt8(rawValue) }
}
