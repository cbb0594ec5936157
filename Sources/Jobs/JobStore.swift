/// Keeps jobs. It is the truth about them: what the engine holds in memory is a copy.
///
/// Every method that changes something is durable when it returns. Several services may share one store: a job is
/// worked on by the one that holds its claim, and each change is made by the store to the job as it then is.
public protocol JobStore: Sendable {
  /// Saves new jobs, all or none: queued ones, and such as the cache answered, whose image the entry refers to.
  ///
  /// - Parameters:
  ///   - key: the client's idempotency key, with what tells one request from another. It is known as of the first job's
  ///     `createdAt`, whatever becomes of the jobs, until ``forgetKeys(before:count:)``.
  ///   - capacity: how many places the queue has, as ``SharedCapacity`` shares them among owners. A job takes one, and
  ///     one more for each 4 kB of what the store keeps of it.
  func submit(_ jobs: [Job], key: IdempotencyKey?, capacity: Int) async throws(StoreError)
    -> SubmitOutcome

  /// The job, if there is one.
  func job(_ id: JobID) async throws(StoreError) -> Job?

  /// The jobs that fit, newest first. A page may have fewer than asked for, and yet others follow.
  func jobs(_ query: JobQuery) async throws(StoreError) -> JobPage

  /// Hands over up to `count` queued jobs whose `notBefore` has come and whose origin has room, highest priority first
  /// and within one in the order of the queue, each moved to `loading` by ``Job/start(at:)`` under a new claim.
  ///
  /// So that nobody waits for ever: every eighth job handed over is the one that was submitted first among the heads of
  /// the levels, if that was more than 30 seconds ago, whatever its priority.
  ///
  /// A queue full of jobs for origins without room costs the others no time. A task that is cancelled is given what was
  /// handed over by then.
  func claim(_ count: Int, at moment: Timestamp, room: OriginRoom) async throws(StoreError)
    -> Claimed

  /// Hands over up to `count` queued jobs that ask the same (``Job/request``), wherever they stand in the queue and
  /// whether or not their time has come.
  func claim(equalTo request: Fingerprint, count: Int, at moment: Timestamp)
    async throws(StoreError) -> [(job: Job, claim: Claim)]

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

  /// Changes jobs under their claims as ``update(_:under:_:)`` does, keeps the cache entry that their images came with,
  /// and ends a reservation: all of it in one step.
  ///
  /// - Throws: `.full` when the image it brings has no room even with every finished job's image gone: nothing is
  ///   changed then.
  func complete(_ completion: Completion) async throws(StoreError) -> Completed

  /// Images of up to so many bytes it keeps itself, in the transaction that ends their jobs; 0: none.
  var largestEmbedded: Int { get }

  /// Up to `count` jobs after `id` that have succeeded with a low-data image which is still kept, without those that
  /// asked for little data themselves, in the order of their ids.
  func jobsWithLowDataImages(after id: JobID?, count: Int) async throws(StoreError) -> [Job]

  /// Forgets the job if `condition` holds for it as it then is.
  func remove(_ id: JobID, if condition: @escaping @Sendable (Job) -> Bool)
    async throws(StoreError) -> Removal

  /// Registers that an image is about to be kept, before its file is published, so that nobody removes it in between.
  /// Makes room first: the oldest finished jobs' images give way (``Job/loseImage()``), and with them the cache's
  /// entries, until all kept ones and this fit into `limit`.
  ///
  /// - Parameter holder: the job about to be submitted with the image, or any name that nobody else uses. The
  ///   reservation ends when that job is submitted, when it is released or settled.
  func reserve(_ image: ImageDigest, bytes: Int, as holder: JobID, limit: Int)
    async throws(StoreError) -> Reservation

  /// Ends a reservation.
  func release(_ holder: JobID) async throws(StoreError)

  /// Lets an image go whose bytes are gone or harmed, as one that gives way does, and marks it as leaving until
  /// ``forget(_:)``.
  ///
  /// - Returns: the jobs that had it; nil, and nothing is done, where no such image is kept, or where a reservation or an
  ///   unfinished job refers to it.
  func lose(_ image: ImageDigest) async throws(StoreError) -> [JobID]?

  /// Forgets jobs whose `expiresAt` has come, up to `count`.
  func expire(at moment: Timestamp, count: Int) async throws(StoreError) -> [JobID]

  /// Forgets up to `count` idempotency keys of before `moment`, the oldest first.
  /// - Returns: how many.
  func forgetKeys(before moment: Timestamp, count: Int) async throws(StoreError) -> Int

  /// Up to `count` images that nothing refers to any more. Each is marked as leaving: it can't be reserved until
  /// ``forget(_:)`` says that its bytes are gone.
  func abandonedImages(_ count: Int) async throws(StoreError) -> [ImageDigest]

  /// Says that these images' bytes are gone.
  func forget(_ images: [ImageDigest]) async throws(StoreError)

  /// Those among the images of which nothing is known, each marked as leaving as ``abandonedImages(_:)`` does.
  func markOrphans(_ images: [ImageDigest]) async throws(StoreError) -> [ImageDigest]

  /// Puts jobs back into the queue whose worker is gone (``Job/requeueAfterCrash()``), and drops reservations and
  /// `pendingDeletion` marks that a crash left behind.
  /// - Returns: how many.
  func recover() async throws(StoreError) -> Int

  /// The jobs that other services sharing the store change or remove, as they do. One that serves a single service has
  /// none: the stream then ends at once.
  func changesByOthers() -> AsyncStream<JobID>

  /// How many jobs are in each phase, and the images' size.
  func counts() async throws(StoreError) -> StoreCounts
}

extension JobStore {
  /// It keeps no images.
  public var largestEmbedded: Int { 0 }

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

/// Jobs handed to this service's workers.
public struct Claimed: Sendable {
  /// The jobs, `loading`, each with its claim.
  public var jobs: [(job: Job, claim: Claim)]
  /// When the next queued job that was not yet due will be, if there is one.
  public var nextDue: Timestamp?
  /// The requests among theirs that further queued jobs ask for.
  public var shared: Set<Fingerprint> = []
  /// Whether it is known that no other job is queued, whatever it would wait for.
  public var isQueueEmpty = false

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
  /// The same key came with the same request before: these are its jobs as they are now, in the order given.
  case repeated([RememberedJob])
  /// The same key came with another request.
  case keyReused
  /// The queue would hold more than its capacity, or than the owner's share of it.
  case queueFull
  /// An image that the cache answered with is no longer kept: nothing was saved.
  case imageGone
}

/// What became of a job that was to be forgotten.
public enum Removal: Sendable, Equatable {
  /// It is forgotten; so it was.
  case removed(Job)
  /// The condition did not hold.
  case kept
  /// There is no such job.
  case unknown
}

/// A job that an idempotency key stands for.
public enum RememberedJob: Sendable, Equatable {
  /// As it is now.
  case kept(Job)
  /// It expired, or was purged.
  case gone(JobID)
}

/// How work on jobs ends.
public struct Completion: Sendable {
  /// The jobs.
  public var claims: [Claim]
  /// What becomes of each; false leaves it alone.
  public var change: @Sendable (inout Job) -> Bool
  /// A response to keep; it replaces the one of the same id. Its image is held by a reservation or a job. Saved
  /// whatever becomes of the jobs.
  public var entry: CacheEntry?
  /// Of all entries' images: the least recently used ones give way until they fit.
  public var cacheLimit: Int
  /// What isn't noted yet of the entries' uses.
  public var lastUse: CacheEntry.LastUse = { _ in nil }
  /// A reservation to end, once the jobs refer to its image.
  public var releasing: JobID?
  /// An image for the store to keep itself, of at most ``JobStore/largestEmbedded`` bytes: without a reservation, and as
  /// long as anything refers to it. Equal bytes that are kept already are left as they are.
  public var image: EmbeddedImage?
  /// Of all kept images' bytes: the oldest finished jobs' give way to this one.
  public var imageLimit: Int

  /// An ending.
  public init(
    _ claims: [Claim], entry: CacheEntry? = nil, cacheLimit: Int = .max, releasing: JobID? = nil,
    image: EmbeddedImage? = nil, imageLimit: Int = .max,
    change: @escaping @Sendable (inout Job) -> Bool
  ) {
    self.claims = claims
    self.change = change
    self.entry = entry
    self.cacheLimit = cacheLimit
    self.releasing = releasing
    self.image = image
    self.imageLimit = imageLimit
  }
}

/// What a settlement came to.
public struct Completed: Sendable, Equatable {
  /// For each claim the job as it then is; nil where the claim no longer holds.
  public var jobs: [Job?]
  /// Images that gave way to the one that came: their bytes are to be removed.
  public var evicted: [ImageDigest]

  /// What it came to.
  public init(jobs: [Job?], evicted: [ImageDigest] = []) {
    self.jobs = jobs
    self.evicted = evicted
  }
}

/// An image small enough to be kept with the jobs.
public struct EmbeddedImage: Sendable, Equatable {
  /// The name of its bytes.
  public var digest: ImageDigest
  /// The bytes.
  public var content: [UInt8]

  /// An image.
  public init(digest: ImageDigest, content: [UInt8]) {
    self.digest = digest
    self.content = content
  }
}

/// What became of a reservation.
public enum Reservation: Sendable, Equatable {
  /// Reserved; these images gave way and their bytes are to be removed first.
  case reserved(evicted: [ImageDigest])
  /// There is no room even with every finished job's image gone.
  case full
  /// The same image is just leaving: ask again once it is forgotten.
  case pendingDeletion
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
  /// What is kept of one job makes no sense, and won't at another time; `detail`, for the log, names the job.
  case unreadable(detail: String)
}
