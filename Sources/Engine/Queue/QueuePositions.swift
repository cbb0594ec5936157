internal import Jobs
internal import Synchronization

/// Estimates how many jobs get a worker before a given one, from the submissions and claims of this process. It asks no
/// store and keeps no record per job.
///
/// Within a priority, jobs are claimed in the order of their ids. Jobs that were cancelled, moved to another priority
/// or held back by their origin still count until a later job of the same priority is claimed. Jobs of batches and
/// requeued jobs don't count.
final class QueuePositions: Sendable {
  private let levels = Mutex([Level](repeating: Level(), count: Priority.allCases.count))
  /// The lowest order of a job of this run.
  private let start: Int

  /// - Parameter moment: when the service started.
  init(since moment: Timestamp) { start = Int(moment.milliseconds) << 12 }

  /// Adds submitted jobs that wait.
  func add(_ jobs: [Job]) {
    levels.withLock { levels in
      for (priority, jobs) in Dictionary(grouping: jobs, by: \.priority) {
        levels[priority.rawValue].add(jobs.map(\.id))
      }
    }
  }

  /// Removes jobs that were claimed in the order of the queue.
  func removeClaimed(_ jobs: some Sequence<Job>) {
    levels.withLock { levels in
      for job in jobs {
        levels[job.priority.rawValue].removeClaimed(job.id)
        guard job.id.order >= start else { continue }
        // All jobs of higher priorities were claimed before this one, including jobs of earlier runs.
        for level in job.priority.rawValue..<levels.count { levels[level].isKnown = true }
      }
    }
  }

  /// Records that no job is left that could be claimed.
  func clear() {
    levels.withLock { levels in
      for level in levels.indices {
        levels[level].clear()
        levels[level].isKnown = true
      }
    }
  }

  /// Returns the number of jobs before this one. Nil if it is unknown: the job was requeued, or jobs of an earlier run
  /// may be ahead of it.
  func ahead(of job: Job) -> Int? {
    guard job.startedAt == nil, job.notBefore == nil, job.batch == nil else { return nil }
    return levels.withLock { levels in
      let level = levels[job.priority.rawValue]
      guard level.isKnown else { return nil }
      return levels[(job.priority.rawValue + 1)...].reduce(level.count(before: job.id)) {
        $0 + $1.count
      }
    }
  }

  /// Waiting jobs of one priority.
  private struct Level {
    /// Jobs that were submitted together: the order of the first and the last one, and their number.
    struct Run {
      var first: Int
      var last: Int
      var count: Int

      /// Estimates how many of them come before `order`, assuming that they are spread evenly.
      func count(before order: Int) -> Int {
        guard order > first else { return 0 }
        guard order <= last else { return count }
        return Int(Double(count - 1) * Double(order - first) / Double(last - first))
      }
    }

    /// Above this number of runs, neighbors are merged in pairs.
    static let maxRuns = 1_024
    /// In order, without claimed jobs.
    private var runs: [Run] = []
    private(set) var count = 0
    /// The order of the last claimed job.
    private var lastClaimed = 0
    /// Whether all waiting jobs of this priority were submitted since the start.
    var isKnown = false

    mutating func add(_ ids: [JobID]) {
      // The dispatcher may already have claimed some of them.
      let waiting = ids.map(\.order).filter { $0 > lastClaimed }
      guard let first = waiting.first, let last = waiting.last else { return }
      let run = Run(first: first, last: last, count: waiting.count)
      runs.append(run)
      count += run.count
      guard runs.count > Self.maxRuns else { return }
      runs = stride(from: 0, to: runs.count, by: 2).map { index in
        let pair = runs[index..<min(index + 2, runs.count)]
        return Run(
          first: pair.first!.first, last: pair.last!.last,  // the last pair may have one element
          count: pair.reduce(0) { $0 + $1.count })
      }
    }

    mutating func removeClaimed(_ id: JobID) {
      lastClaimed = max(lastClaimed, id.order)
      let gone = runs.prefix { $0.last <= id.order }
      count -= gone.reduce(0) { $0 + $1.count }
      runs.removeFirst(gone.count)
      guard let run = runs.first, run.first <= id.order else { return }
      let part = run.count(before: id.order) + 1
      runs[0] = Run(first: id.order + 1, last: run.last, count: run.count - part)
      count -= part
    }

    mutating func clear() { (runs, count) = ([], 0) }

    func count(before id: JobID) -> Int {
      var sum = 0
      for run in runs {
        if run.first > id.order { break }
        sum += run.count(before: id.order)
      }
      return sum
    }
  }
}

extension JobID {
  /// Increases with each job of a process: milliseconds, then the counter within one (``JobIDSequence``).
  fileprivate var order: Int { Int(high >> 16) << 12 | Int(high & 0xFFF) }
}
