internal import Jobs
internal import Waiting

/// The memory budget of jobs that wait for loads, shared among owners. A value: the caller guards it with its own lock.
///
/// An origin decides how long jobs wait. So only as many equal jobs join a load as fit into this budget. The others stay
/// queued for a later load.
struct WaitingMemory {
  /// The memory that one job uses, estimated.
  struct Part {
    let owner: Owner
    let bytes: Int
    let defaults: SharedDefaults?
  }

  private struct Defaults {
    let owner: Owner
    let bytes: Int
    var jobs: Int
  }

  /// Bytes for all waiting jobs.
  static let capacity = 64 << 20
  /// Bytes for a job without long texts: its copies in its load and in ``JobSnapshots``.
  static let bytesPerJob = 6 << 10

  private var shares = FairShare<Owner>()
  /// Defaults that jobs of a batch share. They are counted once.
  private var defaults: [ObjectIdentifier: Defaults] = [:]

  /// The approximate number of further jobs of usual size that may join loads.
  var remainingJobs: Int { max(0, Self.capacity - shares.held) / Self.bytesPerJob }

  /// Reserves memory for a job that joins a load; nil if too little is left for its owner.
  mutating func reserve(_ job: Job, at moment: Timestamp) -> Part? {
    let bytes = Self.bytes(of: job) + newBytes(of: job.submission.defaults)
    let bounds = ShareBounds(Self.capacity)
    guard shares.hasCapacity(for: bytes, of: job.owner, within: bounds, at: moment) else {
      return nil
    }
    return reserveUnchecked(job)
  }

  /// Reserves memory for a job that starts a load, even beyond the budget.
  mutating func reserveUnchecked(_ job: Job) -> Part {
    let part = Part(
      owner: job.owner, bytes: Self.bytes(of: job), defaults: job.submission.defaults)
    shares.acquireUnchecked(part.bytes, for: part.owner)
    guard let shared = part.defaults else { return part }
    let name = ObjectIdentifier(shared)
    if defaults[name] == nil {
      let new = Defaults(owner: job.owner, bytes: shared.memoryBytes, jobs: 0)
      shares.acquireUnchecked(new.bytes, for: new.owner)
      defaults[name] = new
    }
    defaults[name]?.jobs += 1
    return part
  }

  /// Releases the memory of a job that no longer waits.
  mutating func release(_ part: Part) {
    shares.release(part.bytes, of: part.owner)
    guard let name = part.defaults.map({ ObjectIdentifier($0) }) else { return }
    defaults[name]?.jobs -= 1
    guard let last = defaults[name], last.jobs == 0 else { return }
    shares.release(last.bytes, of: last.owner)
    defaults[name] = nil
  }

  private static func bytes(of job: Job) -> Int { bytesPerJob + job.ownTextBytes }

  private func newBytes(of shared: SharedDefaults?) -> Int {
    guard let shared, defaults[ObjectIdentifier(shared)] == nil else { return 0 }
    return shared.memoryBytes
  }
}

/// The memory shared by all decodes. A decode that needs more than is free waits; waiting decodes are served in order
/// of arrival.
///
/// An origin that sends only the first bytes of a large image must not make other decodes wait. So images that are
/// still downloading use at most half of the memory. While a decode waits, they release it with the next piece they
/// receive, or after a time without one.
struct DecodeMemory: Sendable {
  /// A part of the memory, released when the value is destroyed.
  typealias MemoryPermit = AsyncSemaphore.Permit

  /// A decode that needs at most this fraction (1/256) of the memory never waits.
  static let smallPart = 256

  private let total: Int
  private let free: AsyncSemaphore

  init(bytes: Int) {
    total = bytes
    free = AsyncSemaphore(bytes)
  }

  /// Reserves `bytes` for an image that is still downloading. Returns nil if less than half of the memory would be left
  /// for complete images.
  func reserveWhileDownloading(_ bytes: Int) -> MemoryPermit? {
    isSmall(bytes)
      ? free.acquireImmediately(bytes) : free.acquire(bytes, leaving: total - total / 2)
  }

  /// Reserves `bytes`, or all memory if that is less, without waiting. Returns nil if a decode would have to wait for
  /// it.
  func reserveNow(_ bytes: Int) -> MemoryPermit? {
    isSmall(bytes) ? free.acquireImmediately(bytes) : free.acquire(min(bytes, total), leaving: 0)
  }

  /// Whether images that are still downloading have to release their memory, because a decode waits.
  var isWanted: Bool { free.waiting > 0 }

  /// Waits until `bytes` are free, or all memory if that is less, and reserves them. Returns nil if the task was
  /// cancelled.
  func reserve(_ bytes: Int) async -> MemoryPermit? {
    isSmall(bytes) ? free.acquireImmediately(bytes) : await free.acquire(bytes)
  }

  func isSmall(_ bytes: Int) -> Bool { bytes <= total / Self.smallPart }

  /// Number of decodes that wait.
  var waiting: Int { free.waiting }
}
