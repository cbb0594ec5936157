/// The queue of jobs, and the right to work on them.
///
/// What changes something is durable when it returns. Several services may share one store, each under a lease of its own
/// (``InstanceLeases``): a job is worked on by the one that holds its claim, and each change is made by the store to the
/// job as it then is. Moments are the store's clock's.
public protocol JobQueue: Sendable {
  /// Saves new jobs, all or none: queued ones, and such as the cache answered, whose image the entry refers to.
  ///
  /// - Parameters:
  ///   - key: the client's idempotency key, with what tells one request from another. It is known as of the first job's
  ///     `createdAt`, whatever becomes of the jobs, until ``JobRecords/forgetKeys(olderThan:count:)``.
  ///   - capacity: how many places the queue has.
  func submit(_ jobs: [Job], key: IdempotencyKey?, capacity: QueueCapacity) async throws(StoreError)
    -> SubmitOutcome

  /// Hands over up to `count` queued jobs whose `notBefore` has come and whose origin and owner have room, in the order
  /// that ``QueueOrder`` tells, each moved to `loading` by ``Job/start(at:by:)`` under a new claim.
  ///
  /// A queue full of jobs for origins without room, or of owners without, costs the others no time. A task that is
  /// cancelled is given what was handed over by then.
  ///
  /// Where others may have claims too (``StoreNews/isExclusive``), theirs count: a job waits while another instance
  /// loads one for an origin that asks the same, until that one ends (``Completion/gathers``) or is given back; and no origin
  /// gets more than ``OriginRoom/overall`` of all. What is claimed by ``claim(equalTo:count:for:)`` counts as no
  /// transfer.
  ///
  /// - Throws: `.leaseLost` where the instance's lease is over.
  func claim(_ count: Int, for instance: Instance, room: OriginRoom, owners: OwnerRoom<Owner>)
    async throws(StoreError) -> Claimed

  /// Hands over up to `count` queued jobs that ask the same (``Job/request``), wherever they stand in the queue and
  /// whether or not their time has come.
  ///
  /// - Throws: `.leaseLost` where the instance's lease is over.
  func claim(equalTo request: Fingerprint, count: Int, for instance: Instance)
    async throws(StoreError) -> [(job: Job, claim: Claim)]

  /// Changes jobs under their claims as ``JobRecords/update(_:under:_:)`` does, keeps the cache entry that their images
  /// came with, and ends a reservation: all of it in one step.
  ///
  /// - Throws: `.full` when the image it brings has no room even with every finished job's image gone: nothing is
  ///   changed then.
  func complete(_ completion: Completion) async throws(StoreError) -> Completed

  /// Images of up to so many bytes it keeps itself, in the transaction that ends their jobs; 0: none.
  var largestEmbedded: Int { get }

  /// Whether a call that failed may have done its work all the same, or do it a while later: the answer was lost.
  var losesAnswers: Bool { get }
}

extension JobQueue {
  /// It keeps no images.
  public var largestEmbedded: Int { 0 }

  /// What fails has changed nothing.
  public var losesAnswers: Bool { false }
}

/// The right to work on a job, until the job leaves `loading`: the number fences off whoever held it before.
public struct Claim: Hashable, Sendable {
  /// The job.
  public let job: JobID
  /// Whose it is.
  public let instance: Instance
  /// Unlike any other claim's on that job, whoever made it.
  public let number: Int64

  /// A claim.
  public init(job: JobID, instance: Instance, number: Int64) {
    self.job = job
    self.instance = instance
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
  /// Whether a job waits for what others do at its origin: it is worth asking again soon.
  public var isHeldBack = false
  /// What queued jobs ask for that now wait for another instance's load of the same.
  public var awaited: Set<Fingerprint> = []

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
  /// The queue would hold more than its capacity, or than the owner's share of it, with so many places more.
  case queueFull(wanting: Int)
  /// The records would have more bytes than ``QueueCapacity/recordBytes``, or than the owner's share of it.
  case recordsFull
  /// An image that the cache answered with is no longer kept: nothing was saved.
  case imageGone
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
  /// Who removes the images that give way.
  public var instance: Instance
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
  /// An image for the store to keep itself, of at most ``JobQueue/largestEmbedded`` bytes: without a reservation, and as
  /// long as anything refers to it. Equal bytes that are kept already are left as they are.
  public var image: EmbeddedImage?
  /// Of all kept images' bytes: the oldest finished jobs' give way to this one.
  public var imageLimit: Int
  /// Whether queued jobs that ask the same as these are to be handed over to the instance, as these end the load that they
  /// wait for. A reservation then goes on. Only where others may have claims.
  public var gathers = false
  /// Whether it was tried before: where the answer to that was lost (``JobQueue/losesAnswers``) it may have been made
  /// then. A job that is in its phase by its claim here is then answered with as it is.
  public var isRepeated = false

  /// An ending.
  /// - Parameter instance: nil: the one that holds the claims.
  public init(
    _ claims: [Claim], by instance: Instance? = nil, entry: CacheEntry? = nil,
    cacheLimit: Int = .max, releasing: JobID? = nil,
    image: EmbeddedImage? = nil, imageLimit: Int = .max,
    change: @escaping @Sendable (inout Job) -> Bool
  ) {
    self.claims = claims
    self.instance = instance ?? claims.first?.instance ?? .none
    self.change = change
    self.entry = entry
    self.cacheLimit = cacheLimit
    self.releasing = releasing
    self.image = image
    self.imageLimit = imageLimit
  }
}

/// What a completion came to.
public struct Completed: Sendable, Equatable {
  /// For each claim the job as it then is; nil where the claim no longer holds.
  public var jobs: [Job?]
  /// Images that gave way to the one that came: their bytes are to be removed.
  public var evicted: [ImageName]
  /// Those that were gathered: they are to end the same way. Where there are any the reservation has not ended.
  public var gathered: [ClaimedJob] = []

  /// What it came to.
  public init(jobs: [Job?], evicted: [ImageName] = []) {
    self.jobs = jobs
    self.evicted = evicted
  }
}

/// A job that was handed over.
public struct ClaimedJob: Sendable, Equatable {
  /// `loading`.
  public var job: Job
  /// The right to work on it.
  public var claim: Claim

  /// A job under its claim.
  public init(job: Job, claim: Claim) {
    (self.job, self.claim) = (job, claim)
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
