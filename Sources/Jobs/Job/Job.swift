// Jobs: the values and rules of the product, and the contracts between the engine and its adapters.
//
// The module does no I/O and reads no clock. Functions that need the time or a random number take it as a parameter. Its
// values are passed between threads. The protocols say which of their functions may block.
//
// Read the types in this order:
//
// 1. `Submission`, `Job`, `Phase`, `Job+Moves`: a job, from what the client asks to its result. `JobFailure` and
//    `FailureCode`: why it failed. `Batch`, `Batch+Moves`: many jobs that are followed as one.
// 2. Rules: `JobOption` (the table of a job's options), `ClaimChooser` and `QueueOrder` (which job is next),
//    `RetryPolicy`, `FairShare`, `FairQueue` and `TokenBucket` (shares, turns and rates of clients), `Job+Request` (which
//    jobs share a load), `JobEvents` (what clients are notified of), `Rendition` (which variants are equal).
// 3. Contracts of the job store: `JobStore` joins `JobQueue`, `JobRecords`, `BatchStore`, `ImageReferences`,
//    `InstanceLeases`, `InstanceEvents` and `WebhookOutbox`.
// 4. Contracts of other adapters: `ImageFetcher`, `ImageCodec`, `ImageRenderer`, `ImageSpool`, `ImageStore`,
//    `ImageDestinations` (in `Delivery`) and `WebhookClient`.

/// One image to fetch from one source for one owner. Only the methods in `Job+Moves.swift` change a job.
///
/// A store saves the encoded job, and also saves copies of the members that it searches by.
package struct Job: Sendable, Equatable, Identifiable, Codable {
  /// A UUID that sorts by creation time.
  package let id: JobID
  /// The owner. The job is visible to this owner and to admins.
  package let owner: Owner
  /// The request of the client.
  package var submission: Submission {
    // Unlike `get`, this makes no copy.
    _read { yield shared.value }
  }
  private(set) var shared: SharedSubmission
  /// When the job was accepted.
  package let createdAt: Timestamp
  /// The job's position in its batch; nil if it belongs to none.
  package let batch: BatchPosition?

  package var phase: Phase = .queued
  /// The URL that is requested next.
  @Sparse package var target = URLCandidate.regular
  /// The number of previews made so far while the job is `loading`; 0 in any other phase.
  @Sparse package var previews = 0
  /// Whether loads and cache entries are never shared with other owners (`cache.shared` is off).
  @Sparse package var isApart = false
  /// Whether the job bypasses the cache (`cache.enabled` is off).
  @Sparse package var skipsCache = false
  /// The completed deliveries, in the requested order, once the job is `success`.
  @Sparse package var deliveries: [Delivered] = []
  /// Increases with every change that the store saves. Conditional changes compare it.
  @Sparse package private(set) var revision = 0 {
    didSet { reports = 0 }
  }
  /// The job's priority in the queue.
  package var priority: Priority
  /// The owner's labels.
  @TagList package var tags: [String]
  /// The number of bytes received.
  @Sparse package var progress = Progress()
  /// The result, once the job is `success`.
  package var image: StoredImage?
  /// The loaded image while its variants or deliveries are still to be done; otherwise nil.
  package var pending: PendingResult?
  /// The reason for the failure, once the job is `failure`.
  package var failure: JobFailure?
  /// Why the last try failed, while the job waits for the next one. While alternatives are tried, it is the
  /// failure that decides whether there is another try.
  package var lastFailure: JobFailure?
  /// Requests sent to the origin, including those of earlier runs if the job was fetched again.
  @Sparse package var attempts = 0
  /// Tries since the owner last queued the job. `max_attempts` limits them.
  @Sparse package var tries = 0
  /// The cache's part in the result, once the job has finished.
  package var cache: CacheOutcome?
  /// The duration of each step.
  @Sparse package var timings = Timings()
  /// The number of progress reports at this revision. Known in memory only.
  package private(set) var reports = 0
  /// When a worker first started the job.
  package var startedAt: Timestamp?
  /// When the job became `success`, `failure` or `cancelled`.
  package var finishedAt: Timestamp?
  /// When the job is deleted.
  package var expiresAt: Timestamp?
  /// The earliest time at which a worker may start the job (the back-off of a retry).
  package var notBefore: Timestamp?

  /// Increases with every change that clients can see: with each revision and with each progress report.
  /// Progress reports need not be stored, because the next revision gives a higher version whichever instance
  /// makes it.
  package var version: Int { revision << Self.reportBits &+ reports &+ 1 }

  private static func revision(ofVersion version: Int) -> Int { (version &- 1) >> reportBits }

  /// Whether the job is unchanged since one of these versions; nil matches any. Progress reports do not count
  /// as changes.
  package func isUnchanged(since versions: [Int]?) -> Bool {
    versions?.contains { Self.revision(ofVersion: $0) == revision } ?? true
  }

  /// Enough for ten reports a second for a day. Together with ``changeBits``, the versions of 2^23 instances
  /// fit into a JSON number.
  private static let reportBits = 20
  /// Bits for the changes that one instance makes to a job. Used by ``revise(by:)``.
  private static let changeBits = 10

  /// Increments the revision, for a change that is about to be stored.
  mutating func revise() { revision &+= 1 }

  /// Raises the revision above all revisions that earlier instances can have shown.
  ///
  /// A power cut may undo a claim, and with it a revision that clients have seen.
  mutating func revise(by instance: Instance) {
    revision = max(revision, Int(instance.number) << Self.changeBits) &+ 1
  }

  /// Raises the revision above one that clients have seen but that was undone.
  mutating func revise(above shown: Int) { revision = max(revision, shown) &+ 1 }

  /// Records the number of progress reports.
  mutating func count(report: Int) { reports = min(report, 1 << Self.reportBits - 1) }

  /// The time of the next try while the job waits for it; nil otherwise.
  package var nextAttempt: Timestamp? { lastFailure == nil ? nil : notBefore }

  /// A queued job.
  package init(
    id: JobID, owner: Owner, submission: Submission, priority: Priority, tags: [String],
    createdAt: Timestamp, batch: BatchPosition? = nil
  ) {
    self.id = id
    self.owner = owner
    shared = SharedSubmission(submission)
    self.priority = priority
    self.tags = tags
    self.createdAt = createdAt
    self.batch = batch
  }

  /// The job with only the source of its submission, because clients see no other part of the submission.
  var asShown: Job {
    var job = self
    job.shared = SharedSubmission(Submission(source: submission.source))
    return job
  }

  /// The job as it is read from a store: without what is known in memory only.
  package var asStored: Job {
    var job = self
    job.reports = 0
    return job
  }

  private enum CodingKeys: String, CodingKey {
    case id, owner, createdAt, batch, phase, target, previews, isApart, skipsCache, deliveries
    case shared = "submission"
    case revision, priority, tags, progress, image, pending, failure, lastFailure
    case attempts, tries, cache, timings, startedAt, finishedAt, expiresAt, notBefore
  }
}

/// The submission of a job, with what is often derived from it. It never changes, so copies of the job share it, because copying
/// its many members is slow.
final class SharedSubmission: Sendable, Equatable, Codable {
  let value: Submission
  /// ``Submission/textBytes``.
  let textBytes: Int
  /// ``Submission/loadParts``.
  let loadParts: [String]

  init(_ submission: Submission) {
    value = submission
    textBytes = submission.textBytes
    loadParts = submission.loadParts
  }

  convenience init(from decoder: any Decoder) throws { self.init(try Submission(from: decoder)) }

  func encode(to encoder: any Encoder) throws { try value.encode(to: encoder) }

  static func == (a: SharedSubmission, b: SharedSubmission) -> Bool {
    a === b || a.value == b.value
  }
}

/// The owner of a job: the name of a token, or ``anonymous`` if no tokens are configured.
package struct Owner: Hashable, Sendable, Codable {
  /// The token's name; empty if no tokens are configured.
  package let name: String
  package init(_ name: String) { self.name = name }
  /// The owner of all jobs if no tokens are configured.
  package static let anonymous = Owner("")
  /// The owner of jobs that `GET /image` creates. No token may have this name.
  package static let view = Owner("view")
}

/// How many bytes of a job's image have arrived.
package struct Progress: Sendable, Initial {
  /// Bytes received, including ``resumedFrom``. Never decreases within one transfer.
  package var completed = 0
  /// The total in bytes, if the origin stated it.
  package var total: Int?
  /// Bytes that an earlier transfer left.
  package var resumedFrom = 0

  package static let initial = Progress()

  package init(completed: Int = 0, total: Int? = nil, resumedFrom: Int = 0) {
    self.completed = completed
    self.total = total
    self.resumedFrom = resumedFrom
  }

  /// Bytes received by this transfer.
  package var arrived: Int { completed - resumedFrom }

  /// Between 0 and 1; nil while the total is unknown.
  package var fraction: Double? {
    guard let total, total > 0 else { return nil }
    return min(1, Double(completed) / Double(total))
  }
}

/// The image of a successful job.
package struct StoredImage: Sendable, Equatable, Codable {
  /// The properties found by the decoder.
  package var description: ImageDescription
  /// The digest of the original bytes.
  package var digest: ImageDigest
  /// The size of the original in bytes.
  package var bytes: Int
  /// The URL that returned the image; nil for local and uploaded images.
  package var url: SourceURL?
  /// Which of the submission's URLs the image came from.
  package var variant: SourceVariant
  /// `Last-Modified` of the origin; otherwise the time when the image was stored.
  package var modifiedAt: Timestamp
  /// False after the image was evicted.
  package var isKept = true
  /// The requested variants, in the requested order.
  @Sparse package var variants: [MadeVariant] = []
  /// The stored variants if the original was dropped; nil if the original is stored.
  package var bundle: VariantBundle?

  /// The digest under which the image store has the image: the bundle's or the original's.
  package var keptDigest: ImageDigest { bundle?.digest ?? digest }
  /// The size of the stored bytes.
  package var keptBytes: Int { bundle?.bytes ?? bytes }

  /// A stored image.
  package init(
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

/// The concatenated variants of an image whose original is dropped, in order. The image store treats the
/// bundle as one image, so all its variants are stored and deleted together.
package struct VariantBundle: Sendable, Equatable, Codable {
  /// The digest of all bytes, which is the bundle's name in the image store.
  package var digest: ImageDigest
  /// The size in bytes.
  package var bytes: Int

  package init(digest: ImageDigest, bytes: Int) { (self.digest, self.bytes) = (digest, bytes) }
}

extension StoredImage {
  /// Returns the position of a variant within the bytes of ``bundle``.
  package func range(of variant: Int) -> Range<Int> {
    let start = variants[..<variant].reduce(0) { $0 + $1.bytes }
    return start..<start + variants[variant].bytes
  }
}

/// Which of a submission's URLs an image came from.
package enum SourceVariant: String, Sendable, Codable {
  case regular
  case lowData = "low_data"
}

/// The cache's part in a job's result (a subset of RFC 9211).
package struct CacheOutcome: Sendable, Equatable, Codable {
  package enum Status: String, Sendable, Codable { case hit, miss, revalidated, stale, bypass }
  package var status: Status
  /// The age of the response when it was used, in seconds.
  package var age: Int
  /// When the response becomes stale.
  package var freshUntil: Timestamp?

  package init(_ status: Status, age: Int = 0, freshUntil: Timestamp? = nil) {
    self.status = status
    self.age = age
    self.freshUntil = freshUntil
  }
}

/// The duration of each step of a job; nil for steps that were not reached.
package struct Timings: Sendable, Initial {
  /// From being queued to being started.
  package var queued: Duration?
  /// Name resolution.
  package var dns: Duration?
  /// The TCP handshake.
  package var connect: Duration?
  /// The TLS handshake.
  package var tls: Duration?
  /// From the request to the first byte of the response.
  package var firstByte: Duration?
  /// From the first byte of the response to the last byte of the body.
  package var body: Duration?
  /// From the request to the last byte of the body.
  package var fetch: Duration?
  /// Computing time of the decode.
  package var decode: Duration?

  package static let initial = Timings()
}

/// Values that a store saves in columns next to the encoded job.
extension Job {
  /// The image whose bytes the job needs: its result or its pending result. Nil if no image is kept.
  package var keptImage: StoredImage? {
    guard let image = image ?? pending?.image, image.isKept else { return nil }
    return image
  }

  /// The digest and size of the bytes that the client uploaded; nil for other sources.
  package var capturedSource: (digest: ImageDigest, bytes: Int)? {
    guard case .captured(let digest, let bytes, _) = submission.source else { return nil }
    return (digest, bytes)
  }

  /// Whether the regular image should replace the image when the network is no longer constrained.
  package var hasLowDataImage: Bool {
    guard phase == .success, let image, image.isKept else { return false }
    return image.variant == .lowData && !submission.savesData
  }
}

/// The phase of a job. ``canBecome(_:)`` defines the legal transitions.
package enum Phase: String, Sendable, CaseIterable, Codable {
  case queued, loading, success, failure, cancelled

  /// Whether the phase is final. A job leaves it only if its owner queues the job again.
  package var isFinished: Bool {
    switch self {
    case .queued, .loading: false
    case .success, .failure, .cancelled: true
    }
  }

  /// Whether a job may go from this phase to `next`.
  package func canBecome(_ next: Phase) -> Bool {
    switch (self, next) {
    case (.queued, .loading), (.queued, .cancelled), (.queued, .failure), (.queued, .success): true
    case (.loading, .success), (.loading, .failure), (.loading, .cancelled), (.loading, .queued):
      true
    case (.failure, .queued), (.cancelled, .queued), (.success, .queued): true
    default: false
    }
  }
}

extension Phase {
  /// The number in store tables. It must not change.
  package var code: Int {
    switch self {
    case .queued: 0
    case .loading: 1
    case .success: 2
    case .failure: 3
    case .cancelled: 4
    }
  }

  package init?(code: Int) {
    guard let phase = Phase.allCases.first(where: { $0.code == code }) else { return nil }
    self = phase
  }
}

/// The priority of a job in the queue.
package enum Priority: Int, Sendable, CaseIterable, Comparable, Codable {
  case veryLow = 0
  case low, normal, high, veryHigh

  package static func < (a: Priority, b: Priority) -> Bool { a.rawValue < b.rawValue }
}
