public import Executors
public import Jobs

/// The decode threads are the pool's, and a task's share of them is its lane.
extension ThreadPool: ComputeThreads {
  public func lane(at priority: Priority) -> any ComputeLane { lane(priority: priority.level) }
}

extension ThreadPool.Lane: ComputeLane {
  public func move(to priority: Priority) { move(to: priority.level) }
}

extension Priority {
  fileprivate var level: UInt8 { UInt8(rawValue) }
}
