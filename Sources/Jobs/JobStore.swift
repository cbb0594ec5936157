/// Keeps jobs. It is the truth about them: what the engine holds in memory is a copy.
///
/// Every method that changes something is durable when it returns. Several services may share one store: a job is
/// worked on by the one that holds its claim, and each change is made by the store to the job as it then is.
public protocol JobStore: Sendable {
  /// Saves new queued jobs, all or none.
  ///
  /// - Parameters:
  ///   - key: the client's idempotency key, with what tells one request from another.
  ///   - capacity: how many queued jobs there may be in all.
  func submit(_ jobs: [Job], key: IdempotencyKey?, capacity: Int) async throws(StoreError)
    -> SubmitOutcome

  /// The job, if there is one.
  func job(_ id: JobID) async throws(StoreError) -> Job?

  /// The jobs that fit, newest first.
  func jobs(_ query: JobQuery) async throws(StoreError) -> JobPage

  /// Hands over up to `count` queued jobs whose `notBefore` has come, highest priority first and within one in the
  /// order of the queue, each moved to `loading` by ``Job/start(at:)`` under a new claim.
  func claim(_ count: Int, at moment: Timestamp) async throws(StoreError) -> Claimed

  /// Changes the job by `change` and saves it; `change` returns false to leave it alone.
  ///
  /// A change of priority also moves the job's place in the queue: raised, behind those already at that level;
  /// lowered, ahead of them. A job that leaves `loading` loses its claim.
  ///
  /// - Parameter claim: nil: whoever holds it. Else the change is made only while this claim holds.
  /// - Returns: the job as it then is; nil when there is no such job or the claim no longer holds.
  func update(
    _ id: JobID, under claim: Claim?, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> Job?

  /// Forgets the job.
  /// - Returns: whether there was one.
  func remove(_ id: JobID) async throws(StoreError) -> Bool

  /// Registers that `holder` is about to keep an image, before its file is published, so that nobody removes it in
  /// between. Makes room first: the oldest finished jobs' images give way (``Job/loseImage()``) until all kept ones
  /// and this fit into `limit`. A claim's reservation ends with the claim (the job itself refers to its image then);
  /// an upcoming job's when it is submitted or released.
  func reserve(_ image: ImageDigest, bytes: Int, for holder: ImageHolder, limit: Int)
    async throws(StoreError) -> Reservation

  /// Ends an upcoming job's reservation: it will not be submitted.
  func release(_ upcoming: JobID) async throws(StoreError)

  /// Forgets jobs whose `expiresAt` has come, up to `count`.
  func expire(at moment: Timestamp, count: Int) async throws(StoreError) -> [JobID]

  /// Up to `count` images that nothing refers to any more. Each is marked as leaving: it can't be reserved until
  /// ``forget(_:)`` says that its bytes are gone.
  func abandonedImages(_ count: Int) async throws(StoreError) -> [ImageDigest]

  /// Says that these images' bytes are gone.
  func forget(_ images: [ImageDigest]) async throws(StoreError)

  /// Whether a job or a reservation refers to the image.
  func refers(to image: ImageDigest) async throws(StoreError) -> Bool

  /// Puts jobs back into the queue whose worker is gone (``Job/requeueAfterCrash()``), and drops reservations and
  /// `leaving` marks that a crash left behind.
  /// - Returns: how many.
  func recover() async throws(StoreError) -> Int

  /// The jobs that other services sharing the store change or remove, as they do. One that serves a single service has
  /// none: the stream then ends at once.
  func changesByOthers() -> AsyncStream<JobID>

  /// How many jobs are in each phase, and the images' size.
  func counts() async throws(StoreError) -> StoreCounts
}

extension JobStore {
  /// Nobody else uses the store.
  public func changesByOthers() -> AsyncStream<JobID> { AsyncStream { $0.finish() } }
}

/// The right to work on a job, until the job leaves `loading`.
public struct Claim: Hashable, Sendable {
  /// The job.
  public let job: JobID
  /// Unlike any other claim's on that job.
  public let number: Int64

  /// A claim.
  public init(job: JobID, number: Int64) {
    self.job = job
    self.number = number
  }
}

/// For whom an image is reserved.
public enum ImageHolder: Hashable, Sendable {
  /// A job under way.
  case claim(Claim)
  /// A job about to be submitted with captured bytes.
  case upcoming(JobID)
}

/// Jobs handed to this service's workers.
public struct Claimed: Sendable {
  /// The jobs, `loading`, each with its claim.
  public var jobs: [(job: Job, claim: Claim)]
  /// When the next queued job that was not yet due will be, if there is one.
  public var nextDue: Timestamp?

  /// A handover.
  public init(jobs: [(job: Job, claim: Claim)], nextDue: Timestamp?) {
    self.jobs = jobs
    self.nextDue = nextDue
  }
}

/// A client's word that two requests are one (the Idempotency-Key header field).
public struct IdempotencyKey: Sendable, Equatable {
  /// Whose key it is.
  public var owner: Owner
  /// As the client gave it.
  public var key: String
  /// The digest of the request, to tell a repetition from another request under the same key.
  public var fingerprint: ImageDigest

  /// A key.
  public init(owner: Owner, key: String, fingerprint: ImageDigest) {
    self.owner = owner
    self.key = key
    self.fingerprint = fingerprint
  }
}

/// What became of a submission.
public enum SubmitOutcome: Sendable, Equatable {
  /// Saved.
  case accepted
  /// The same key came with the same request before: these are its jobs as they are now.
  case repeated([Job])
  /// The same key came with another request.
  case keyReused
  /// The queue would hold more than its capacity.
  case queueFull
}

/// What became of a reservation.
public enum Reservation: Sendable, Equatable {
  /// Reserved; these images gave way and their bytes are to be removed first.
  case reserved(gaveWay: [ImageDigest])
  /// There is no room even with every finished job's image gone.
  case full
  /// The claim no longer holds.
  case claimLost
  /// The same image is just leaving: ask again once it is forgotten.
  case leaving
}

/// Which jobs to list.
public struct JobQuery: Sendable, Equatable {
  /// Nil: everyone's.
  public var owner: Owner?
  /// Empty: any.
  public var phases: Set<Phase> = []
  /// One that the job has.
  public var tag: String?
  /// Only jobs older than this one.
  public var before: JobID?
  /// Only those that expire after this moment.
  public var now: Timestamp
  /// At the most.
  public var limit: Int

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

  /// A page.
  public init(jobs: [Job], hasMore: Bool) {
    self.jobs = jobs
    self.hasMore = hasMore
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

  /// Counts.
  public init(jobs: [Phase: Int] = [:], images: Int = 0, imageBytes: Int = 0) {
    self.jobs = jobs
    self.images = images
    self.imageBytes = imageBytes
  }
}

/// Why a store could not do as asked.
public enum StoreError: Error, Sendable, Equatable {
  /// The disk has no room.
  case full
  /// Anything else; `detail` is for the log.
  case unavailable(detail: String)
}
