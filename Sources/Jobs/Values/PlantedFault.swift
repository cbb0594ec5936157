#if DEBUG
  internal import Glibc

  /// A fault that a test plants in the service, to show that the check of histories finds it. Release builds have none.
  package enum PlantedFault: String, Sendable {
    /// The store lets an instance finish a cancelled job although its claim has ended.
    case skippedFencing = "skipped-fencing"
    /// A submission is acknowledged before it is committed.
    case earlyAnswer = "early-answer"
    /// Other instances ignore that a job has changed.
    case droppedEvents = "dropped-events"
    /// A change of tags or priority keeps the version.
    case reusedVersion = "reused-version"
    /// If the answer to a submission's commit is lost, the store acknowledges it without a second try.
    case lostRetry = "lost-retry"

    private static let planted = getenv("PLANTED_FAULT").flatMap {
      PlantedFault(rawValue: String(cString: $0))
    }

    package var isPlanted: Bool { Self.planted == self }
  }

  extension Job {
    /// Undoes the job's end, as if the store had not checked the claim.
    package mutating func forgetEnd() {
      (phase, finishedAt, expiresAt) = (.loading, nil, nil)
    }
  }
#endif
