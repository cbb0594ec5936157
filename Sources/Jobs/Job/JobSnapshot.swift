internal import Synchronization

/// One version of a job with its encoded form, which all readers and event streams share.
package final class JobSnapshot: Sendable {
  package let job: Job
  private let encoding = Mutex<[UInt8]?>(nil)
  private let eventEncoding = Mutex<(events: [JobEvent], bytes: [UInt8])?>(nil)

  package init(_ job: Job) {
    self.job = job
    // The encoding repeats the texts that clients see.
    weight = 1 + (job.textBytes + job.visibleBytes) / Self.usualBytes
  }

  /// The memory that the snapshot needs, relative to ``usualBytes``: 1 for a job of the usual size.
  package let weight: Int
  static let usualBytes = 1536

  /// Returns the encoded job. Calls `make` the first time and keeps the result.
  package func encoded(_ make: (Job) -> [UInt8]) -> [UInt8] {
    encoding.withLock { kept in
      if let kept { return kept }
      let made = make(job)
      kept = made
      return made
    }
  }

  /// Returns the encoded events of the job, which all streams share. Calls `make` the first time.
  ///
  /// The bytes are kept while the job runs, until its next version. They are not kept for a finished job: its
  /// snapshot may stay in memory for a long time, but its last events are sent only once.
  package func encoded(_ events: [JobEvent], _ make: () -> [UInt8]) -> [UInt8] {
    guard !job.phase.isFinished else { return make() }
    return eventEncoding.withLock { kept in
      if let kept, kept.events == events { return kept.bytes }
      let made = make()
      kept = (events, made)
      return made
    }
  }
}

// Approximate memory of a job's variable-length parts, in bytes. Almost zero for most jobs, about 200,000 for
// the longest valid ones. Memory limits use these numbers.

extension Job {
  /// Bytes of all texts and arrays.
  package var textBytes: Int { shared.textBytes + resultBytes }

  /// Bytes of the texts that the job does not share with other lines of its batch.
  package var ownTextBytes: Int {
    guard let defaults = submission.defaults?.submission else { return textBytes }
    return submission.textBytes(beyond: defaults) + resultBytes
  }

  /// Bytes of the texts that clients see.
  var visibleBytes: Int { submission.source.textBytes + resultBytes }

  /// Bytes of all texts except the submission's.
  private var resultBytes: Int {
    var bytes = tags.reduce(0) { $0 + 16 + $1.utf8.count }
    for delivered in deliveries { bytes += delivered.textBytes }
    if let image { bytes += (image.url?.textBytes ?? 0) + 256 * image.variants.count }
    // The description contains all texts of the failure.
    for reason in [failure, lastFailure] { bytes += reason?.description.utf8.count ?? 0 }
    return bytes
  }
}

extension Submission {
  /// Bytes of all texts and arrays.
  var textBytes: Int { textBytes(beyond: nil) }

  /// Bytes of the texts and arrays that differ from the defaults.
  func textBytes(beyond defaults: Submission?) -> Int {
    let ownHosts = hosts == defaults?.hosts ? [] : hosts
    let hostBytes = ownHosts.reduce(0) { $0 + 32 + $1.given.utf8.count + $1.one.utf8.count }
    return JobOption.members.reduce(source.textBytes + hostBytes) {
      $0 + $1.member.textBytes(self, defaults)
    }
  }
}

extension SharedDefaults {
  /// Approximate memory of the defaults, in bytes: the members, and the encoded record if there is one.
  package var memoryBytes: Int { 1_024 + submission.textBytes + tagBytes + recordBytes }
}

extension Source {
  fileprivate var textBytes: Int {
    switch self {
    case .url(let url, let lowData): url.textBytes + (lowData?.textBytes ?? 0)
    case .local(let name): name.utf8.count
    case .captured(_, _, let contentType): contentType.utf8.count
    }
  }
}

extension Optional: OptionValue where Wrapped: OptionValue {
  var textBytes: Int { self?.textBytes ?? 0 }

  func isIdentical(to other: Self) -> Bool {
    guard let self, let other else { return self == nil && other == nil }
    return self.isIdentical(to: other)
  }
}

extension Array: OptionValue where Element: OptionValue {
  var textBytes: Int { reduce(count * MemoryLayout<Element>.stride) { $0 + $1.textBytes } }

  func isIdentical(to other: Self) -> Bool { elementsEqual(other) { $0.isIdentical(to: $1) } }
}

extension Bool: OptionValue {
  var textBytes: Int { 0 }
}

extension Int: OptionValue {
  var textBytes: Int { 0 }
}

extension Duration: OptionValue {
  var textBytes: Int { 0 }
}

extension String: OptionValue {
  var textBytes: Int { utf8.count }

  func isIdentical(to other: Self) -> Bool { utf8.elementsEqual(other.utf8) }
}

extension CacheMode: OptionValue {
  var textBytes: Int { 0 }
}

extension ImageDigest: OptionValue {
  var textBytes: Int { bytes.count }
}

extension VariantRequest: OptionValue {
  var textBytes: Int { name.utf8.count }

  func isIdentical(to other: Self) -> Bool { self == other && name.isIdentical(to: other.name) }
}

extension Webhook: OptionValue {
  var textBytes: Int { url.textBytes }

  func isIdentical(to other: Self) -> Bool { self == other && url.isIdentical(to: other.url) }
}

extension DeliveryRequest: OptionValue {
  var textBytes: Int {
    let place =
      switch target {
      case .put(let url, let headers): url.textBytes + headers.textBytes
      case .profile(let name, let key): name.utf8.count + key.template.utf8.count
      }
    return place + (variant?.utf8.count ?? 0)
  }

  /// Compares the descriptions, which contain all members.
  func isIdentical(to other: Self) -> Bool {
    self == other && "\(self)".isIdentical(to: "\(other)")
  }
}

extension Delivered {
  fileprivate var textBytes: Int {
    [destination, url, key, variant, entityTag].reduce(128) { $0 + ($1?.utf8.count ?? 0) }
  }
}

extension HeaderField: OptionValue {
  var textBytes: Int { name.utf8.count + value.utf8.count }

  func isIdentical(to other: Self) -> Bool {
    name.isIdentical(to: other.name) && value.isIdentical(to: other.value)
  }
}

extension SourceURL: OptionValue {
  var textBytes: Int { host.utf8.count + pathAndQuery.utf8.count }

  func isIdentical(to other: Self) -> Bool { self == other && host.isIdentical(to: other.host) }
}

/// What an unfinished job waits for, according to this instance's memory. It changes without a new version of
/// the job.
package struct WaitingFor: Sendable, Equatable {
  /// The reason for the wait.
  package enum Reason: String, Sendable, CaseIterable {
    /// No worker is free.
    case worker
    /// The limit of concurrent transfers to the origin is reached.
    case originLimit = "origin_limit"
    /// The rate limit of requests to the origin is reached.
    case originRate = "origin_rate"
    /// The origin is paused, because several requests in a row could not reach it.
    case originPaused = "origin_paused"
    /// The disk is full. No job starts until there is space.
    case storage
    /// The back-off after a failed try.
    case retry
    /// Its variants have to wait for those of other jobs. The job is `loading`.
    case render
    /// Its deliveries have to wait, because the number of concurrent uploads to a destination is limited. The
    /// job is `loading`.
    case deliver
  }

  package var reason: Reason
  /// The origin (RFC 6454) of the next request; nil if there will be no request.
  package var origin: String?
  /// When the wait ends, if that depends on time.
  package var until: Timestamp?
  /// The approximate number of jobs ahead of it in the queue; nil if unknown.
  package var ahead: Int?

  package init(
    _ reason: Reason, origin: String?, until: Timestamp? = nil, ahead: Int? = nil
  ) {
    self.reason = reason
    self.origin = origin
    self.until = until
    self.ahead = ahead
  }
}

/// A worker's progress with one job. Known in memory only until the job leaves `loading`.
package struct ProgressReport: Sendable, Equatable, Codable {
  /// The number of bytes received.
  package var progress: Progress
  /// Requests sent to the origin over the job's whole life.
  package var attempts: Int
  /// Duration of each step so far.
  package var timings: Timings
  /// The number of previews so far.
  package var previews: Int

  /// The progress of a job that a worker has just started.
  package init(of job: Job) { self.init(of: job, LoadProgress()) }

  /// The progress that clients see of a job.
  package init(shownOf job: Job) {
    progress = job.progress
    attempts = job.attempts
    timings = job.timings
    previews = job.previews
  }

  /// The progress of a load as seen by one of its jobs, which is given as it was claimed.
  package init(of job: Job, _ load: LoadProgress) {
    progress = load.bytes
    previews = load.previews
    attempts = job.attempts + load.requests
    timings = job.timings
    timings.merge(load.timings)
  }

  /// Whether this is an earlier state of the same job: it is about an earlier request, or has fewer bytes or previews of the
  /// same one, or does not know the total yet.
  func precedes(_ other: ProgressReport) -> Bool { order < other.order }

  private var order: (Int, Int, Int, Int) {
    (attempts, progress.completed, previews, progress.total == nil ? 0 : 1)
  }
}

extension Timings {
  /// Replaces each duration that `newer` has.
  mutating func merge(_ newer: Timings) {
    queued = newer.queued ?? queued
    dns = newer.dns ?? dns
    connect = newer.connect ?? connect
    tls = newer.tls ?? tls
    firstByte = newer.firstByte ?? firstByte
    body = newer.body ?? body
    fetch = newer.fetch ?? fetch
    decode = newer.decode ?? decode
  }
}

/// The progress of a load.
package struct LoadProgress: Sendable, Equatable {
  /// The number of bytes received.
  package var bytes = Progress()
  /// Requests sent to the origin.
  package var requests = 0
  /// Duration of each step so far.
  package var timings = Timings()
  /// The number of previews so far.
  package var previews = 0

  package init() {}
}

/// The pixels decoded so far of an image that is still loading, with its final dimensions and orientation.
package struct Preview: Sendable, Equatable {
  /// A file in the format ``format``.
  package var bytes: [UInt8]
  /// JPEG for scans of a JPEG, PNG for passes of a PNG.
  package var format: ImageFormat
  /// The number of scans or passes that the preview shows, from 1.
  package var scan: Int

  package init(bytes: [UInt8], format: ImageFormat, scan: Int) {
    self.bytes = bytes
    self.format = format
    self.scan = scan
  }
}
