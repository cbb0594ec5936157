import Dispatch
import Jobs
import Synchronization

@testable import Engine

/// Lanes on a dispatch queue. Lanes of workers record the priorities that they were given.
final class TestThreads: ComputeThreads {
  /// The executor that a task prefers.
  final class Lane: ComputeLane, TaskExecutor {
    private let queue: DispatchQueue

    init(on queue: DispatchQueue) { self.queue = queue }

    func move(to priority: Priority) {}

    func enqueue(_ job: consuming ExecutorJob) {
      let job = UnownedJob(job)
      queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
  }

  /// The executor of an actor.
  final class SerialLane: ComputeLane, SerialExecutor {
    private let queue: DispatchQueue
    private let moves = Mutex<[Priority]>([])

    init(on queue: DispatchQueue) {
      self.queue = DispatchQueue(label: "test-worker", target: queue)
    }

    /// The priorities given so far, in order, without repetitions.
    var priorities: [Priority] { moves.withLock { $0 } }

    func move(to priority: Priority) {
      moves.withLock { if $0.last != priority { $0.append(priority) } }
    }

    func enqueue(_ job: consuming ExecutorJob) {
      let job = UnownedJob(job)
      queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }
  }

  private let queue = DispatchQueue(label: "test-decode", attributes: .concurrent)
  private let made = Mutex<[SerialLane]>([])

  /// The lanes of all workers so far, oldest first.
  var workerLanes: [SerialLane] { made.withLock { $0 } }

  func lane(at priority: Priority) -> any TaskLane { Lane(on: queue) }

  func workerLane(at priority: Priority) -> any WorkerLane {
    let lane = SerialLane(on: queue)
    made.withLock { $0.append(lane) }
    return lane
  }
}
