internal import Jobs
internal import Synchronization

/// The times at which the stages of a load started and ended, for traces of its jobs.
final class LoadStages: Sendable {
  private typealias Instant = ContinuousClock.Instant

  private typealias Stage = (name: JobStage.Name, began: Instant, ended: Instant?)

  private let stages: Mutex<[Stage]>

  init() { stages = Mutex([]) }

  private init(_ stages: [Stage]) { self.stages = Mutex(stages) }

  /// A copy of the stages so far, for jobs that continue after the load.
  func copy() -> LoadStages { LoadStages(stages.withLock { $0 }) }

  func begin(_ name: JobStage.Name) { stages.withLock { $0.append((name, .now, nil)) } }

  func end(_ name: JobStage.Name) {
    stages.withLock { stages in
      guard let last = stages.lastIndex(where: { $0.name == name && $0.ended == nil }) else {
        return
      }
      stages[last].ended = .now
    }
  }

  /// Returns the stages for the traces of jobs that end now. Stages that have not ended count up to now.
  /// - Parameter began: the start of storing the jobs' end, which is the last stage.
  func stages(storedSince began: ContinuousClock.Instant) -> [JobStage] {
    let now = ContinuousClock.now
    let last = JobStage(.store, before: now - began, took: now - began)
    return stages.withLock { stages in
      stages.map { JobStage($0.name, before: now - $0.began, took: ($0.ended ?? now) - $0.began) }
    } + [last]
  }
}
