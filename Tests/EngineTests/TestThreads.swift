import Dispatch
import Jobs
import Synchronization

@testable import Engine

/// Lanes on a queue that runs what it gets in order, and that tell which priorities they were given.
final class TestThreads: ComputeThreads {
  final class Lane: ComputeLane {
    private let queue: DispatchQueue
    private let moves: Mutex<[Priority]>

    init(_ priority: Priority, on queue: DispatchQueue) {
      self.queue = queue
      moves = Mutex([priority])
    }

    /// The priorities in the order in which it was given them, each once.
    var priorities: [Priority] { moves.withLock { $0 } }

    func move(to priority: Priority) {
      moves.withLock { if $0.last != priority { $0.append(priority) } }
    }

    func enqueue(_ job: consuming ExecutorJob) {
      let job = UnownedJob(job)
      queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
  }

  private let queue = DispatchQueue(label: "test-decode", attributes: .concurrent)
  private let made = Mutex<[Lane]>([])

  /// Every lane so far, oldest first.
  var lanes: [Lane] { made.withLock { $0 } }

  func lane(at priority: Priority) -> any ComputeLane {
    let lane = Lane(priority, on: queue)
    made.withLock { $0.append(lane) }
    return lane
  }
}
