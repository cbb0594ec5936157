internal import Jobs
internal import Synchronization

/// When the stages of a load began and ended, for whoever traces its jobs.
final class LoadStages: Sendable {
  private typealias Instant = ContinuousClock.Instant

  private typealias Stage = (name: JobStage.Name, began: Instant, ended: Instant?)

  private let stages: Mutex<[Stage]>

  init() { stages = Mutex([]) }

  private init(_ stages: [Stage]) { self.stages = Mutex(stages) }

  /// The stages so far, for jobs that go on by themselves.
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

  /// What jobs are told that end now, and whose end began to be stored then. What has not ended ends with them.
  func told(storedSince began: ContinuousClock.Instant) -> [JobStage] {
    let now = ContinuousClock.now
    let last = JobStage(.store, before: now - began, took: now - began)
    return stages.withLock { stages in
      stages.map { JobStage($0.name, before: now - $0.began, took: ($0.ended ?? now) - $0.began) }
    } + [last]
  }
}
