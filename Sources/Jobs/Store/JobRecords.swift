/// Stores jobs. The store is authoritative: jobs in the engine's memory are copies.
package protocol JobRecords: Sendable {
  /// Returns the job, if it exists.
  func job(_ id: JobID) async throws(StoreError) -> Job?

  /// Returns the jobs that match the query, newest first. A page may have fewer than `limit` jobs although
  /// more follow.
  func jobs(_ query: JobQuery) async throws(StoreError) -> JobPage

  /// Returns up to `count` successful jobs after `id`, ordered by ID, whose low-data image is kept. Excludes
  /// jobs whose client asked for little data.
  func jobsWithLowDataImages(after id: JobID?, count: Int) async throws(StoreError) -> [Job]

  /// Changes the job by `change` and saves it. `change` returns false to leave the job unchanged. It may be
  /// called again if another change was saved first.
  ///
  /// The change may also move the job in the queue (``QueueMove``). A job that leaves `loading` loses its
  /// claim.
  ///
  /// - Parameter claim: The change is made only while this claim is valid; nil ignores claims.
  /// - Returns: The job after the call; nil if it does not exist or the claim is no longer valid.
  func update(
    _ id: JobID, under claim: Claim?, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> Job?

  /// Changes the job and ignores claims. Refuses a change that would queue a finished job if the queue is
  /// full.
  ///
  /// - Parameter capacity: The limits of the queue; for a job of a batch, those of batch jobs.
  func update(
    _ id: JobID, within capacity: QueueCapacity,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> UpdateOutcome

  /// Deletes the job if `condition` is true for its newest state.
  func remove(_ id: JobID, if condition: @escaping @Sendable (Job) -> Bool)
    async throws(StoreError) -> Removal

  /// Deletes up to `count` jobs whose `expiresAt` has passed.
  func expire(_ count: Int) async throws(StoreError) -> [JobID]

  /// Deletes up to `count` idempotency keys that are older than `age`, oldest first.
  /// - Returns: The number of deleted keys.
  func deleteKeys(olderThan age: Duration, count: Int) async throws(StoreError) -> Int

  /// Adds bytes received from origins to the owners' totals of a day (``Timestamp/day``). Deletes the totals
  /// of days before the previous one.
  /// - Returns: The new totals of these owners, in bytes.
  func addBytes(_ came: [Owner: Int], on day: Int) async throws(StoreError) -> [Owner: Int]

  /// Returns the number of jobs in each phase, and the number and size of images.
  func counts() async throws(StoreError) -> StoreCounts

  /// Whether the disk of the job store is almost full. The store then refuses new records and keeps the
  /// remaining space for deletions.
  func isLow() async -> Bool

  /// Whether there is space for new records again. Called once a second after a full disk; the call may free
  /// space itself.
  func hasRoom() async -> Bool
}

extension JobRecords {
  /// Unknown for this store.
  package func isLow() async -> Bool { false }

  /// Unknown for this store.
  package func hasRoom() async -> Bool { true }
}

/// The result of a change that may queue a job.
package enum UpdateOutcome: Sendable, Equatable {
  /// The job after the call, changed or not.
  case updated(Job)
  /// The queue is full, or the owner's share of it is. The job is unchanged.
  case queueFull
  case unknown
}

/// The result of deleting a job.
package enum Removal: Sendable, Equatable {
  /// The job was deleted. The value is its last state.
  case removed(Job)
  /// The condition was false for the job. The value is its present state.
  case kept(Job)
  case unknown
}

/// Selects jobs.
package struct JobQuery: Sendable, Equatable {
  /// Nil selects the jobs of all owners.
  package var owner: Owner?
  /// Empty selects all phases.
  package var phases: Set<Phase> = []
  /// Only jobs with this tag.
  package var tag: String?
  /// Only jobs of this batch.
  package var batch: BatchID?
  /// Only jobs whose `url` has this host.
  package var host: String?
  /// The canonical spelling of ``host``, which finds jobs with any spelling of it; nil if that is the host
  /// itself.
  package var hostSpelling: String?
  /// Only jobs with this failure code.
  package var code: FailureCode?
  /// Only jobs submitted at this time or later.
  package var since: Timestamp?
  /// Only jobs submitted before this time.
  package var until: Timestamp?
  /// Only jobs older than this one.
  package var before: JobID?
  /// Only jobs that expire after this moment.
  package var now: Timestamp
  /// The maximum number of jobs.
  package var limit: Int
  /// Limit of the jobs' records, in bytes. A page ends with the job that reaches it.
  package var maxBytes = 4 << 20

  package init(owner: Owner?, now: Timestamp, limit: Int) {
    self.owner = owner
    self.now = now
    self.limit = limit
  }
}

/// One page of jobs.
package struct JobPage: Sendable, Equatable {
  /// Newest first.
  package var jobs: [Job]
  /// Whether older jobs follow.
  package var hasMore: Bool
  /// The last job that was scanned, if it is not on the page.
  package var last: JobID?

  package init(jobs: [Job], hasMore: Bool, last: JobID? = nil) {
    self.jobs = jobs
    self.hasMore = hasMore
    self.last = last
  }
}

extension JobQuery {
  /// The maximum number of a batch's lines that are scanned for a page. A page is short if too few of them
  /// match.
  package static let maxLines = 16_384

  /// Finds the first line of a batch whose job ID is not less than `id`, by binary search; IDs increase with
  /// the line. The job itself may be deleted.
  /// - Parameters:
  ///   - end: A line number greater than that of every line.
  ///   - first: Returns the first job among the lines from the first number up to, but not including, the
  ///     second.
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

  /// Whether the query has conditions that no index supports.
  package var isSelective: Bool { host != nil || code != nil }

  /// Whether the job meets the conditions of ``isSelective``.
  package func selects(_ job: Job) -> Bool {
    (host == nil || hasHost(job)) && (code == nil || job.failure?.code == code)
  }

  /// Whether the job's URL has the host, in the client's or the fetcher's spelling.
  private func hasHost(_ job: Job) -> Bool {
    guard let host, let given = job.submission.url(of: .regular)?.host else { return false }
    return given == host || job.submission.spelling(of: given) == hostSpelling ?? host
  }

  /// All matching jobs have an ID less than this; nil for no bound.
  package var end: JobID? {
    let until = until.map { JobID(high: UInt64(max(0, $0.milliseconds)) << 16, low: 0) }
    return [before, until].compactMap(\.self).min()
  }

  /// All matching jobs have at least this ID; nil for no bound.
  package var start: JobID? {
    since.map { JobID(high: UInt64(max(0, $0.milliseconds)) << 16, low: 0) }
  }
}

/// The number of jobs and images in a store.
package struct StoreCounts: Sendable, Equatable {
  /// Jobs by phase.
  package var jobs: [Phase: Int]
  /// The number of images. Equal images are counted once.
  package var images: Int
  /// The total bytes of the images.
  package var imageBytes: Int
  /// Unfinished jobs by what they wait for, each counted up to ``mostCounted``; nil if the store does not
  /// track it.
  package var queue: [QueueState: Int]?

  /// The limit of these counts, because clients request them often.
  package static let mostCounted = 10_000

  package init(jobs: [Phase: Int] = [:], images: Int = 0, imageBytes: Int = 0) {
    self.jobs = jobs
    self.images = images
    self.imageBytes = imageBytes
  }
}

/// What an unfinished job waits for.
package enum QueueState: String, CaseIterable, Sendable {
  /// A free worker.
  case ready
  /// The time of its next try.
  case due
  /// Capacity of its origin.
  case parked
  /// The end of an equal load at another instance.
  case awaiting
  /// The end of its own load.
  case loading
}

/// The job store that the engine needs. An adapter implements each of these protocols and passes the tests in
/// Tests/StoreTests/Conformance.
package typealias JobStore = JobQueue & JobRecords & BatchStore & ImageReferences & InstanceLeases
  & InstanceEvents & WebhookOutbox

/// Why a call to a store failed.
package enum StoreError: Error, Sendable, Equatable {
  /// The disk is full.
  case full
  /// The calling instance's lease has ended. It has to renew the lease or register again.
  case leaseLost
  /// Any other failure; `detail` is for the log.
  case unavailable(detail: String)
  /// The record of one job cannot be decoded, now or later. `detail`, for the log, names the job.
  case unreadable(detail: String)
}

extension StoreError: CustomStringConvertible {
  /// For the operator's log.
  package var description: String {
    switch self {
    case .full: "no space is left"
    case .leaseLost: "the lease has ended"
    case .unavailable(let detail), .unreadable(let detail): detail
    }
  }
}
