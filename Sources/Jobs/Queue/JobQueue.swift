/// The queue of jobs, and the claims that give an instance the right to work on a job.
///
/// A change is durable when its function returns. Several instances may share one store, each with its own
/// lease (``InstanceLeases``). Only the instance with the claim works on a job. The store applies each change
/// to the newest state of the job. All times are those of the store's clock.
package protocol JobQueue: Sendable {
  /// Saves new jobs, all or none: queued jobs, and jobs that the cache already answered. An answered job
  /// refers to the image of its cache entry.
  ///
  /// - Parameters:
  ///   - key: The client's idempotency key, with a digest of the request. Its age is counted from the first
  ///     job's `createdAt`. It stays until ``JobRecords/deleteKeys(olderThan:count:)``, whatever happens to
  ///     the jobs.
  ///   - capacity: The limits of the queue.
  func submit(_ jobs: [Job], key: IdempotencyKey?, capacity: QueueCapacity) async throws(StoreError)
    -> SubmitOutcome

  /// Claims up to `count` queued jobs whose `notBefore` has passed and whose origin and owner have capacity.
  /// The order is that of ``QueueOrder``. Each job becomes `loading` (``Job/start(at:by:)``) under a new
  /// claim.
  ///
  /// Jobs of origins or owners without capacity do not slow the call, even if the queue is full of them. If
  /// the task is cancelled, the call returns the jobs claimed so far.
  ///
  /// If other instances share the store (``InstanceEvents/isExclusive`` is false), their claims count too. A job
  /// waits while another instance loads an equal request. It can be claimed when that load ends
  /// (``Completion/claimsEqual``) or its claim is released. No origin exceeds ``OriginCapacity/overall``, counted
  /// over all instances. Jobs claimed by ``claim(equalTo:count:for:)`` do not count as transfers.
  ///
  /// - Throws: `.leaseLost` if the instance's lease has ended.
  func claim(
    _ count: Int, for instance: Instance, room: OriginCapacity, owners: OwnerCapacity
  )
    async throws(StoreError) -> Claimed

  /// Claims up to `count` queued jobs with an equal request (``Job/request``), anywhere in the queue, even
  /// before their `notBefore`.
  ///
  /// - Throws: `.leaseLost` if the instance's lease has ended.
  func claim(equalTo request: Fingerprint, count: Int, for instance: Instance)
    async throws(StoreError) -> [(job: Job, claim: Claim)]

  /// Changes jobs under their claims like ``JobRecords/update(_:under:_:)``, saves the cache entry of their
  /// image, and ends a reservation, all in one transaction.
  ///
  /// - Throws: `.full` if there is not enough space for the image, even without the images of all finished
  ///   jobs. Nothing is changed then.
  func complete(_ completion: Completion) async throws(StoreError) -> Completed

  /// The largest image, in bytes, that the job store saves itself, in the transaction that ends its jobs; 0
  /// for none.
  var largestEmbedded: Int { get }

  /// Whether a failed call may have succeeded nevertheless, now or later, because only its answer was lost.
  var losesAnswers: Bool { get }
}

extension JobQueue {
  /// The store saves no images.
  package var largestEmbedded: Int { 0 }

  /// A failed call has changed nothing.
  package var losesAnswers: Bool { false }
}

/// The right to work on a job until it leaves `loading`. The store refuses changes under an older claim.
package struct Claim: Hashable, Sendable {
  package let job: JobID
  /// The instance that holds the claim.
  package let instance: Instance
  /// Different from the number of every other claim on this job.
  package let number: Int64

  package init(job: JobID, instance: Instance, number: Int64) {
    self.job = job
    self.instance = instance
    self.number = number
  }
}

/// The result of a claim.
package struct Claimed: Sendable {
  /// The jobs, now `loading`, each with its claim.
  package var jobs: [(job: Job, claim: Claim)]
  /// When the next queued job is due, if one is waiting for its time.
  package var nextDue: Timestamp?
  /// Requests of these jobs that other queued jobs have too.
  package var shared: Set<Fingerprint> = []
  /// Whether the queue is known to contain no other job, not even a waiting one.
  package var isQueueEmpty = false
  /// Whether a job waits for other instances' transfers to its origin. Claim again soon.
  package var isHeldBack = false
  /// Requests of queued jobs that wait for an equal load of another instance.
  package var loadingElsewhere: Set<Fingerprint> = []

  package init(jobs: [(job: Job, claim: Claim)], nextDue: Timestamp?) {
    self.jobs = jobs
    self.nextDue = nextDue
  }
}

/// An idempotency key (the header field `Idempotency-Key`).
package struct IdempotencyKey: Sendable, Equatable {
  /// The owner of the key.
  package var owner: Owner
  /// The key as the client sent it.
  package var key: String
  /// The digest of the request. Another request under the same key has another digest.
  package var fingerprint: ImageDigest

  package init(owner: Owner, key: String, fingerprint: ImageDigest) {
    self.owner = owner
    self.key = key
    self.fingerprint = fingerprint
  }
}

/// The result of a submission.
package enum SubmitOutcome: Sendable, Equatable {
  /// The jobs were saved.
  case accepted
  /// An earlier submission had the same key and the same request. The value has its jobs in their present
  /// state, in the order of the request.
  case repeated([RememberedJob])
  /// An earlier request with other content used the key.
  case keyReused
  /// The queue is full, or the owner's share of it is. The jobs need `wanting` slots.
  case queueFull(wanting: Int)
  /// The job records would exceed ``QueueCapacity/recordBytes`` or the owner's share of it.
  case recordsFull
  /// An image from the cache is no longer stored. Nothing was saved.
  case imageGone
}

/// A job of an earlier request with the same idempotency key.
package enum RememberedJob: Sendable, Equatable {
  /// The job in its present state.
  case kept(Job)
  /// The job expired or was purged.
  case gone(JobID)
}

/// The end of the work on jobs with one image. All of it is applied in one transaction.
package struct Completion: Sendable {
  /// The claims of the jobs.
  package var claims: [Claim]
  /// The instance that removes the evicted images.
  package var instance: Instance
  /// Changes each job; returns false to leave it unchanged.
  package var change: @Sendable (inout Job) -> Bool
  /// A response to cache; it replaces one with the same ID. A reservation or a job must refer to its image.
  /// Saved even if no job is changed.
  package var entry: CacheEntry?
  /// Limit of all cache entries' images, in bytes. The least recently used entries are evicted.
  package var cacheLimit: Int
  /// Uses of cache entries that the store does not know yet.
  package var lastUse: CacheEntry.LastUse = { _ in nil }
  /// The reservation to end, once the jobs refer to its image.
  package var releasing: JobID?
  /// An image for the job store to save, of at most ``JobQueue/largestEmbedded`` bytes. It needs no
  /// reservation and stays while anything refers to it. Equal bytes that are already stored stay as they are.
  package var image: EmbeddedImage?
  /// Limit of all kept images, in bytes. The images of the oldest finished jobs are evicted.
  package var imageLimit: Int
  /// Whether to also claim queued jobs with an equal request for this instance, because these jobs end the
  /// load that they wait for. The reservation then continues. Used only if instances share the store.
  package var claimsEqual = false
  /// Whether this is a repetition after a failed call (``JobQueue/losesAnswers``). The first call may have
  /// succeeded. Jobs that already have the result of this claim are then returned as they are.
  package var isRepeated = false

  /// - Parameter instance: Nil means the instance that holds the claims.
  package init(
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

/// The result of a completion.
package struct Completed: Sendable, Equatable {
  /// The changed job for each claim; nil if the claim is no longer valid.
  package var jobs: [Job?]
  /// Evicted images, whose bytes have to be removed.
  package var evicted: [ImageName]
  /// Jobs that were claimed because of ``Completion/claimsEqual``. They have to end with the same result. If
  /// there are any, the reservation has not ended.
  package var claimedEqual: [ClaimedJob] = []

  package init(jobs: [Job?], evicted: [ImageName] = []) {
    self.jobs = jobs
    self.evicted = evicted
  }
}

/// A job and its claim.
package struct ClaimedJob: Sendable, Equatable {
  /// The job, now `loading`.
  package var job: Job
  package var claim: Claim

  package init(job: Job, claim: Claim) {
    (self.job, self.claim) = (job, claim)
  }
}

/// An image that is small enough to be saved with the jobs.
package struct EmbeddedImage: Sendable, Equatable {
  package var digest: ImageDigest
  package var content: [UInt8]

  package init(digest: ImageDigest, content: [UInt8]) {
    self.digest = digest
    self.content = content
  }
}

/// The order in which queued jobs are claimed.
///
/// The highest priority comes first. Within a priority, the owner with the fewest loading jobs comes first.
/// An owner's batches take turns with the owner's single jobs. Within a batch, and among single jobs, the
/// order is that of submission. For every second job, the owner is compared before the priority, so that high
/// priorities of one owner do not block other owners.
///
/// About every eighth job is chosen by age instead: the oldest among the first jobs of all levels, if it is
/// older than ``oldAge``. So no job waits forever. Instances that share a store count these turns
/// separately, which is accurate enough.
package enum QueueOrder {
  /// One out of this many claimed jobs is chosen by its age.
  static let agedEvery = 8
  /// A job that was submitted longer ago than this is old.
  static let oldAge = Duration.seconds(30)

  /// Whether the next job is chosen by its age.
  /// - Parameter count: The number of jobs claimed before.
  static func choosesByAge(after count: Int) -> Bool { count % agedEvery == agedEvery - 1 }

  /// Whether the next job is chosen by owner before priority.
  /// - Parameter count: The number of jobs claimed before.
  static func choosesByOwner(after count: Int) -> Bool { count % 2 == 0 }

  /// Whether a job is so old that its priority is ignored.
  static func isOld(_ id: JobID, at moment: Timestamp) -> Bool {
    moment - id.moment > oldAge
  }

  /// Whether a job's due time has passed.
  /// - Parameter longestWait: A due time further away than this can only come from a clock that was later set
  ///   back. Such a job is treated as due.
  package static func isDue(
    _ notBefore: Timestamp?, at moment: Timestamp, longestWait: Duration? = nil
  ) -> Bool {
    guard let notBefore, notBefore > moment else { return true }
    return longestWait.map { notBefore > moment + $0 } ?? false
  }

  /// Whether a job waits because another instance loads an equal request. A job without an origin never does.
  package static func isAwaited(
    origin: String?, request: Fingerprint?, among loading: Set<Fingerprint>
  ) -> Bool {
    origin != nil && (request.map(loading.contains) ?? false)
  }
}

/// The round-robin position of one queue: an owner's single jobs, or one of the owner's batches, at one
/// priority.
struct RoundRobinState: Sendable {
  let priority: Int
  let owner: RoundRobinOrder.Rank
  let queue: RoundRobinOrder.Rank

  /// Whether this queue comes before `other`; nil if they are equal.
  /// - Parameter owners: Whether owners are compared before priorities.
  func comesBefore(_ other: RoundRobinState, owners: Bool) -> Bool? {
    let byPriority = Self.order(other.priority, priority)
    let byOwner = Self.order(owner, other.owner)
    return (owners ? byOwner ?? byPriority : byPriority ?? byOwner)
      ?? Self.order(queue, other.queue)
  }

  /// Whether the first value is less; nil if they are equal.
  private static func order<Value: Comparable>(_ a: Value, _ b: Value) -> Bool? {
    a == b ? nil : a < b
  }
}

/// How a change of a job moves it in the queue.
package enum QueueMove: Sendable, Equatable {
  /// The job keeps its position.
  case none
  /// The job goes behind all others at its level, because it has just come to this level or into the queue.
  case toTheEnd
  /// The job goes ahead of all others at its level, because its priority was lowered to this level.
  case ahead

  /// The move for a change from `old` to `new`.
  package init(from old: Job, to new: Job) {
    if new.priority > old.priority || (old.phase.isFinished && new.phase == .queued) {
      self = .toTheEnd
    } else {
      self = new.priority < old.priority ? .ahead : .none
    }
  }
}
