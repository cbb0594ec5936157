/// What is known of jobs. It is the truth about them: what the engine holds in memory is a copy.
public protocol JobRecords: Sendable {
  /// The job, if there is one.
  func job(_ id: JobID) async throws(StoreError) -> Job?

  /// The jobs that fit, newest first. A page may have fewer than asked for, and yet others follow.
  func jobs(_ query: JobQuery) async throws(StoreError) -> JobPage

  /// Up to `count` jobs after `id` that have succeeded with a low-data image which is still kept, without those that
  /// asked for little data themselves, in the order of their ids.
  func jobsWithLowDataImages(after id: JobID?, count: Int) async throws(StoreError) -> [Job]

  /// Changes the job by `change` and saves it; `change` returns false to leave it alone, and may be asked again where
  /// another change came first.
  ///
  /// A change may also move the job's place in the queue (``QueueMove``). A job that leaves `loading` loses its claim.
  ///
  /// - Parameter claim: nil: whoever holds it. Else the change is made only while this claim holds.
  /// - Returns: the job as it then is; nil when there is no such job or the claim no longer holds.
  func update(
    _ id: JobID, under claim: Claim?, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> Job?

  /// Changes the job so, whoever holds it, unless that would queue a finished one and there is no place for it.
  ///
  /// - Parameter capacity: how many places the queue has, or, where the job is a batch's, what batches have beside it.
  func update(
    _ id: JobID, within capacity: QueueCapacity,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> UpdateOutcome

  /// Forgets the job if `condition` holds for it as it then is.
  func remove(_ id: JobID, if condition: @escaping @Sendable (Job) -> Bool)
    async throws(StoreError) -> Removal

  /// Forgets jobs whose `expiresAt` has come, up to `count`.
  func expire(_ count: Int) async throws(StoreError) -> [JobID]

  /// Forgets up to `count` idempotency keys that are older than `age`, the oldest first.
  /// - Returns: how many.
  func forgetKeys(olderThan age: Duration, count: Int) async throws(StoreError) -> Int

  /// Adds what came from origins for owners on a day (``Timestamp/day``), and forgets what came more than a day before that.
  /// - Returns: what came for each of them in all.
  func addBytes(_ came: [Owner: Int], on day: Int) async throws(StoreError) -> [Owner: Int]

  /// How many jobs are in each phase, and the images' size.
  func counts() async throws(StoreError) -> StoreCounts

  /// Whether the disk of the records is nearly full: the store refuses what adds some, and the rest is for what removes them.
  func isLow() async -> Bool

  /// Whether there is room for more records, after there was none. Asked once a second until there is: it may make some.
  func hasRoom() async -> Bool
}

extension JobRecords {
  /// It is not known here.
  public func isLow() async -> Bool { false }

  /// It is not known here.
  public func hasRoom() async -> Bool { true }
}

/// What became of a change that may queue a job.
public enum UpdateOutcome: Sendable, Equatable {
  /// The job as it then is, changed or left alone.
  case updated(Job)
  /// It is as it was: the queue would hold more than its capacity, or than the owner's share of it.
  case queueFull
  /// There is no such job.
  case unknown
}

/// What became of a job that was to be forgotten.
public enum Removal: Sendable, Equatable {
  /// It is forgotten; so it was.
  case removed(Job)
  /// The condition did not hold for the job as it is.
  case kept(Job)
  /// There is no such job.
  case unknown
}

/// Which jobs to list.
public struct JobQuery: Sendable, Equatable {
  /// Nil: everyone's.
  public var owner: Owner?
  /// Empty: any.
  public var phases: Set<Phase> = []
  /// One that the job has.
  public var tag: String?
  /// The one that it is a line of.
  public var batch: BatchID?
  /// Of the URL that it names.
  public var host: String?
  /// The fetcher's one spelling of that host, by which a job is found however its own is spelled; nil: as it is.
  public var hostSpelling: String?
  /// Why it failed.
  public var code: FailureCode?
  /// Only jobs that were submitted then or later.
  public var since: Timestamp?
  /// Only jobs that were submitted before.
  public var until: Timestamp?
  /// Only jobs older than this one.
  public var before: JobID?
  /// Only those that expire after this moment.
  public var now: Timestamp
  /// At the most.
  public var limit: Int
  /// Of their records: a page ends early with the one by which it has so many.
  public var maxBytes = 4 << 20

  /// A query.
  public init(owner: Owner?, now: Timestamp, limit: Int) {
    self.owner = owner
    self.now = now
    self.limit = limit
  }
}

/// A part of a list of jobs.
public struct JobPage: Sendable, Equatable {
  /// Newest first.
  public var jobs: [Job]
  /// Whether older ones follow.
  public var hasMore: Bool
  /// The last one that was looked at, where that is none of these.
  public var last: JobID?

  /// A page.
  public init(jobs: [Job], hasMore: Bool, last: JobID? = nil) {
    self.jobs = jobs
    self.hasMore = hasMore
    self.last = last
  }
}

extension JobQuery {
  /// Lines of a batch that are looked at for a page: one that finds too few among them is short, however many there are.
  package static let maxLines = 16_384

  /// Finds the line of a batch before which all ids are before that one, whose job may be gone: later lines have greater
  /// ids. That takes as many looks as the number of lines has bits.
  /// - Parameters:
  ///   - end: a number that no line has, nor any after it.
  ///   - first: the first job of lines from the first number on, up to the second.
  package static func line(
    of id: JobID, upTo end: Int, first: (Int, Int) throws -> (line: Int, id: JobID)?
  ) rethrows -> Int {
    var (low, high) = (0, end)
    while low < high {
      let middle = low + (high - low) / 2
      if let job = try first(middle, high), job.id < id {
        low = job.line + 1
      } else {
        high = middle
      }
    }
    return low
  }

  /// Whether it asks for what no index tells of a job.
  package var isSelective: Bool { host != nil || code != nil }

  /// Whether the job is as ``isSelective`` has it.
  package func selects(_ job: Job) -> Bool {
    (host == nil || hasHost(job)) && (code == nil || job.failure?.code == code)
  }

  /// Whether the job's URL has the host, as the client or as the fetcher spells it.
  private func hasHost(_ job: Job) -> Bool {
    guard let host, let given = job.submission.url(of: .regular)?.host else { return false }
    return given == host || job.submission.spelling(of: given) == hostSpelling ?? host
  }

  /// All ids of jobs that it asks for are before this one; nil: any may be.
  package var end: JobID? {
    let until = until.map { JobID(high: UInt64(max(0, $0.milliseconds)) << 16, low: 0) }
    return [before, until].compactMap(\.self).min()
  }

  /// No id of a job that it asks for is before this one; nil: any may be.
  package var start: JobID? {
    since.map { JobID(high: UInt64(max(0, $0.milliseconds)) << 16, low: 0) }
  }
}

/// What a store holds.
public struct StoreCounts: Sendable, Equatable {
  /// Jobs by phase.
  public var jobs: [Phase: Int]
  /// Images, each counted once.
  public var images: Int
  /// Their bytes.
  public var imageBytes: Int
  /// Queued jobs by what they wait for, and those that are loaded, up to ``mostCounted`` of each; nil where nobody keeps
  /// that apart.
  public var queue: [QueueState: Int]?

  /// Of a long queue no more are counted: whoever wants to know looks often.
  public static let mostCounted = 10_000

  /// Counts.
  public init(jobs: [Phase: Int] = [:], images: Int = 0, imageBytes: Int = 0) {
    self.jobs = jobs
    self.images = images
    self.imageBytes = imageBytes
  }
}

/// What an unfinished job waits for.
public enum QueueState: String, CaseIterable, Sendable {
  /// A worker.
  case ready
  /// Its time: it is tried again.
  case due
  /// Room at its origin.
  case parked
  /// The end of an equal load at another instance.
  case awaiting
  /// Its load's end.
  case loading
}
