/// One image to obtain from one source for one owner. The methods in `Job+Moves.swift` are the only ways it changes.
///
/// A store keeps what `Codable` encodes, and copies of what it searches by beside it.
public struct Job: Sendable, Equatable, Identifiable, Codable {
  /// Its name, sorted by creation.
  public let id: JobID
  /// Who submitted it: for anyone else but an admin it does not exist.
  public let owner: Owner
  /// What was asked for.
  public private(set) var submission: Submission
  /// When it was accepted.
  public let createdAt: Timestamp
  /// Of which batch it is a line; nil: of none.
  public let batch: BatchPlace?

  /// Where it stands.
  public package(set) var phase: Phase = .queued
  /// Which of its URLs is asked next.
  @Sparse public package(set) var target = URLCandidate.regular
  /// Previews of the picture that is loading, so far; 0 in any other phase.
  @Sparse public package(set) var previews = 0
  /// Whether nothing that is fetched for it is another owner's, nor the other way round (`cache.shared`).
  @Sparse public package(set) var isApart = false
  /// Whether nothing goes through the cache (`cache.enabled`).
  @Sparse public package(set) var skipsCache = false
  /// What was brought where, once `success`, in the order asked for.
  @Sparse public package(set) var deliveries: [Delivered] = []
  /// Grows with every change that the store takes in. What is changed on condition is held to it.
  @Sparse public private(set) var revision = 0 {
    didSet { reports = 0 }
  }
  /// How soon its turn comes.
  public package(set) var priority: Priority
  /// The owner's labels.
  @TagList public package(set) var tags: [String]
  /// How far its bytes have come.
  @Sparse public package(set) var progress = Progress()
  /// The result, once `success`.
  public package(set) var image: StoredImage?
  /// The image that was loaded, while its variants or deliveries are still to be done; nil before and after that.
  public package(set) var pending: PendingResult?
  /// Why it failed, once `failure`.
  public package(set) var failure: JobFailure?
  /// Why its last try failed, while it waits for the next one. While it is at its alternatives, what of the URLs before
  /// them decides whether there is a next one.
  public package(set) var lastFailure: JobFailure?
  /// Requests made to the origin's image, over fetching again as well.
  @Sparse public package(set) var attempts = 0
  /// Tries since it was last queued by its owner, for `max_attempts`.
  @Sparse public package(set) var tries = 0
  /// What the cache did, once finished.
  public package(set) var cache: CacheOutcome?
  /// How long each step took.
  @Sparse public package(set) var timings = Timings()
  /// How often its worker has told of progress at this revision. It is known in memory alone.
  public private(set) var reports = 0
  /// When a worker first took it.
  public package(set) var startedAt: Timestamp?
  /// When it became success, failure or cancelled.
  public package(set) var finishedAt: Timestamp?
  /// When it will be forgotten.
  public package(set) var expiresAt: Timestamp?
  /// Not before this moment may a worker take it (a retry's back-off).
  public package(set) var notBefore: Timestamp?

  /// Grows with every change that a client can see: with each revision, and with each report of progress in between.
  /// So no report needs to be stored for the next change to be newer, whoever makes it.
  public var version: Int { revision << Self.reportBits &+ reports &+ 1 }

  private static func revision(ofVersion version: Int) -> Int { (version &- 1) >> reportBits }

  /// Whether no change came after one of these versions, which clients saw; nil: whatever came. A report of progress is
  /// no change.
  public func isAt(_ versions: [Int]?) -> Bool {
    versions?.contains { Self.revision(ofVersion: $0) == revision } ?? true
  }

  /// Ten reports a second for a day and more. With ``changeBits`` there are 2^23 instances' versions in a JSON number.
  private static let reportBits = 20
  /// Changes of a job in the life of an instance, for ``revise(by:)``.
  private static let changeBits = 10

  /// A change that the store is about to take in.
  mutating func revise() { revision &+= 1 }

  /// The same, made by that instance: newer than what others may have shown before it was there.
  ///
  /// A power cut may undo a claim, and with it a revision that clients were told.
  mutating func revise(by instance: Instance) {
    revision = max(revision, Int(instance.number) << Self.changeBits) &+ 1
  }

  /// The same, newer than a revision that is no more.
  mutating func revise(above shown: Int) { revision = max(revision, shown) &+ 1 }

  /// Its worker has told of progress.
  mutating func count(report: Int) { reports = min(report, 1 << Self.reportBits - 1) }

  /// Not before this moment it is tried again, while it waits for its next try.
  public var nextAttempt: Timestamp? { lastFailure == nil ? nil : notBefore }

  /// A queued job that nobody has taken yet.
  public init(
    id: JobID, owner: Owner, submission: Submission, priority: Priority, tags: [String],
    createdAt: Timestamp, batch: BatchPlace? = nil
  ) {
    self.id = id
    self.owner = owner
    self.submission = submission
    self.priority = priority
    self.tags = tags
    self.createdAt = createdAt
    self.batch = batch
  }

  /// The job with only the source of its submission, which is all that clients can see of it.
  var asTold: Job {
    var job = self
    job.submission = Submission(source: submission.source)
    return job
  }

  /// The job as a store keeps it that has not got its batch's defaults.
  package var withoutSharedDefaults: Job {
    var job = self
    job.submission.defaults = nil
    return job
  }

  private enum CodingKeys: String, CodingKey {
    case id, owner, submission, createdAt, batch, phase, target, previews, isApart, skipsCache
    case deliveries, revision, priority, tags, progress, image, pending, failure, lastFailure
    case attempts, tries, cache, timings, startedAt, finishedAt, expiresAt, notBefore
  }
}

/// Who a job belongs to: a token's name, or nobody's where no tokens are configured.
public struct Owner: Hashable, Sendable, Codable {
  /// The token's name; empty where no tokens are configured.
  public let name: String
  /// The owner of that name.
  public init(_ name: String) { self.name = name }
  /// Where no tokens are configured, everyone is this one.
  public static let anonymous = Owner("")
  /// Whom the jobs of views belong to: no token may have that name.
  public static let view = Owner("view")
}

/// How far a job's bytes have come.
public struct Progress: Sendable, Initial {
  /// Bytes so far; never falls within one transfer.
  public var completed = 0
  /// Bytes in all, if the origin said so.
  public var total: Int?
  /// Bytes kept from an earlier transfer.
  public var resumedFrom = 0

  /// Nothing yet.
  public static let initial = Progress()

  /// So much.
  public init(completed: Int = 0, total: Int? = nil, resumedFrom: Int = 0) {
    self.completed = completed
    self.total = total
    self.resumedFrom = resumedFrom
  }

  /// Bytes that came in this transfer.
  public var arrived: Int { completed - resumedFrom }

  /// 0…1, nil while the total is unknown.
  public var fraction: Double? {
    guard let total, total > 0 else { return nil }
    return min(1, Double(completed) / Double(total))
  }
}

/// A job's result.
public struct StoredImage: Sendable, Equatable, Codable {
  /// What the decode found.
  public var description: ImageDescription
  /// The name of its bytes in the image store.
  public var digest: ImageDigest
  /// How many bytes it has.
  public var bytes: Int
  /// The URL that served it; nil for local and captured ones.
  public var url: SourceURL?
  /// Which of the submission's URLs it is.
  public var variant: SourceVariant
  /// When the origin last changed it by its word, else when it was stored: `Last-Modified`.
  public var modifiedAt: Timestamp
  /// False once the image gave way to newer ones.
  public var isKept = true
  /// Those that the job wanted, in its order.
  @Sparse public var variants: [MadeVariant] = []
  /// What is kept in the place of its own bytes; nil where these are.
  public var bundle: VariantBundle?

  /// The name in the image store of what is kept of it.
  public var keptDigest: ImageDigest { bundle?.digest ?? digest }
  /// How many bytes are kept of it.
  public var keptBytes: Int { bundle?.bytes ?? bytes }

  /// A kept image.
  public init(
    description: ImageDescription, digest: ImageDigest, bytes: Int, url: SourceURL?,
    variant: SourceVariant, modifiedAt: Timestamp
  ) {
    self.description = description
    self.digest = digest
    self.bytes = bytes
    self.url = url
    self.variant = variant
    self.modifiedAt = modifiedAt
  }
}

/// The variants of an image whose own bytes are dropped, in their order, one behind the other. To a store they are one
/// image: they come, stay and go together.
public struct VariantBundle: Sendable, Equatable, Codable {
  /// Of all the bytes: their name in the image store.
  public var digest: ImageDigest
  /// How many there are.
  public var bytes: Int

  /// Bytes of that digest.
  public init(digest: ImageDigest, bytes: Int) { (self.digest, self.bytes) = (digest, bytes) }
}

extension StoredImage {
  /// Where a variant stands among the bytes of ``bundle``.
  package func place(of variant: Int) -> Range<Int> {
    let start = variants[..<variant].reduce(0) { $0 + $1.bytes }
    return start..<start + variants[variant].bytes
  }
}

/// Which of a submission's URLs an image came from.
public enum SourceVariant: String, Sendable, Codable {
  case regular
  case lowData = "low_data"
}

/// What the cache did for a job (RFC 9211 in short).
public struct CacheOutcome: Sendable, Equatable, Codable {
  /// What happened.
  public enum Status: String, Sendable, Codable { case hit, miss, revalidated, stale, bypass }
  /// What happened.
  public var status: Status
  /// The response's age when it was used, in seconds.
  public var age: Int
  /// Until when it counts as fresh.
  public var freshUntil: Timestamp?

  /// An outcome.
  public init(_ status: Status, age: Int = 0, freshUntil: Timestamp? = nil) {
    self.status = status
    self.age = age
    self.freshUntil = freshUntil
  }
}

/// How long a job's steps took; nil for those not reached.
public struct Timings: Sendable, Initial {
  /// From being queued to being taken.
  public var queued: Duration?
  /// The name's resolution.
  public var dns: Duration?
  /// The TCP handshake.
  public var connect: Duration?
  /// The TLS handshake.
  public var tls: Duration?
  /// From the request to the response's first byte.
  public var firstByte: Duration?
  /// From the response's first byte to the body's last one.
  public var body: Duration?
  /// From the request to the body's last byte.
  public var fetch: Duration?
  /// Computing time of the decode.
  public var decode: Duration?

  /// None.
  public static let initial = Timings()

  /// All nil.
  public init() {}
}

/// What a store keeps beside its record.
extension Job {
  /// The image whose bytes the job needs: its result, or what its result is made of; nil where nothing is kept.
  package var keptImage: StoredImage? {
    guard let image = image ?? pending?.image, image.isKept else { return nil }
    return image
  }

  /// The digest and size of the bytes that the client sent, if it did.
  package var capturedSource: (digest: ImageDigest, bytes: Int)? {
    guard case .captured(let digest, let bytes, _) = submission.source else { return nil }
    return (digest, bytes)
  }

  /// Whether its image is to be replaced by the regular one once there is data to spare.
  package var hasLowDataImage: Bool {
    guard phase == .success, let image, image.isKept else { return false }
    return image.variant == .lowData && !submission.savesData
  }
}
