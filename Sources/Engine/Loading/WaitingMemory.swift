internal import Jobs

/// The memory of jobs that wait for loads, shared among owners. A value: whoever keeps it guards it.
///
/// An origin decides how long they wait. So at most as many equal jobs join a load as fit here. The others stay queued and
/// have another load.
struct WaitingMemory {
  /// What a job takes, about.
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

  /// Bytes of all of them.
  static let capacity = 64 << 20
  /// Of a job without long texts: it is in its load, by its name and in ``JobSnapshots``.
  static let bytesPerJob = 6 << 10

  private var shares = SharedCapacity<Owner>()
  /// Jobs that share defaults have them once.
  private var defaults: [ObjectIdentifier: Defaults] = [:]

  /// About how many further jobs of the usual size may join loads.
  var places: Int { max(0, Self.capacity - shares.held) / Self.bytesPerJob }

  /// Takes memory for a job that joins a load; nil where there is too little.
  mutating func take(_ job: Job, at moment: Timestamp) -> Part? {
    let bytes = Self.bytes(of: job) + newBytes(of: job.submission.defaults)
    guard shares.hasRoom(for: bytes, of: job.owner, within: Self.capacity, at: moment) else {
      return nil
    }
    return hold(job)
  }

  /// Takes memory for a job that has to be in a load: one begins with it.
  mutating func hold(_ job: Job) -> Part {
    let part = Part(
      owner: job.owner, bytes: Self.bytes(of: job), defaults: job.submission.defaults)
    shares.hold(part.bytes, for: part.owner)
    guard let shared = part.defaults else { return part }
    let name = ObjectIdentifier(shared)
    if defaults[name] == nil {
      let new = Defaults(owner: job.owner, bytes: shared.memoryBytes, jobs: 0)
      shares.hold(new.bytes, for: new.owner)
      defaults[name] = new
    }
    defaults[name]?.jobs += 1
    return part
  }

  /// The job waits no more.
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
