internal import Jobs
internal import Logging
internal import Metrics
internal import Synchronization

/// Whether images can still be decoded: by the last one that was, or, where none was for a while, by a canary.
///
/// A port that answers proves little: decode threads that all hang, or decoder processes that none can be had of, leave it
/// open. So `GET /readyz` goes by this. The canary is the smallest picture there is, decoded as any other: an actor on
/// the threads of the workers, a decoder of the codec.
final class Vitality: Sendable {
  private struct State {
    /// A canary is under way since then.
    var canarySince: ContinuousClock.Instant?
    var isFailing = false
  }

  private let rules: CanaryRules
  private let canary: Canary
  private let loads: Loads
  private let lastDecode: LastDecode
  private let log: Logger
  private let state = Mutex(State())
  /// Loads that were told of as stuck, by the job that each began for.
  private let told = Mutex<Set<JobID>>([])
  private let canaries = Counter(label: "imagefetch_canaries_total")

  init(
    _ rules: CanaryRules, codec: any ImageCodec, threads: any ComputeThreads, loads: Loads,
    _ lastDecode: LastDecode, log: Logger
  ) {
    self.rules = rules
    self.loads = loads
    self.lastDecode = lastDecode
    self.log = log
    canary = Canary(
      on: threads.workerLane(at: .veryHigh), codec: codec, picture: rules.picture)
    canaries.increment(by: 0)
  }

  /// Nothing has been decoded for a while, the canary neither.
  var isFailing: Bool { state.withLock { $0.isFailing } }

  /// Looks until cancelled.
  func run(now: WallClock) async {
    while (try? await Task.sleep(for: rules.interval)) != nil {
      watch(at: now())
      look()
    }
  }

  private func look() {
    let moment = ContinuousClock.now
    let (isDue, isLate) = state.withLock { state -> (Bool, Bool) in
      if let since = state.canarySince { return (false, since + rules.patience <= moment) }
      guard lastDecode.moment + rules.quiet <= moment || state.isFailing else {
        return (false, false)
      }
      state.canarySince = moment
      return (true, false)
    }
    if isLate { note(failing: "it was not decoded within \(rules.patience.toldInSeconds) s") }
    guard isDue else { return }
    canaries.increment()
    // Nobody waits for it: where threads hang it never ends, and stopping must not hang with it.
    Task { [self] in
      let fault = await canary.decode()
      state.withLock { $0.canarySince = nil }
      if fault == nil { lastDecode.note() }
      note(failing: fault)
    }
  }

  private func note(failing fault: String?) {
    let was = state.withLock { state in
      defer { state.isFailing = fault != nil }
      return state.isFailing
    }
    if let fault, !was {
      log.error(
        "images can't be decoded: until they can, this service says that it is not ready",
        metadata: ["error": "\(fault)"])
    } else if fault == nil, was {
      log.notice("images are decoded again")
    }
  }

  // MARK: Workers

  /// Loads that have been under way for longer than any should.
  func stuck(at moment: Timestamp) -> [Load] {
    loads.all.filter { moment - $0.since > rules.longest }
  }

  /// Tells of each once.
  private func watch(at moment: Timestamp) {
    let stuck = stuck(at: moment)
    let known = told.withLock { told in
      defer { told = Set(stuck.map(\.leader.id)) }
      return told
    }
    for load in stuck where !known.contains(load.leader.id) {
      log.error(
        "a worker is stuck",
        metadata: [
          "job": "\(load.leader.id)", "jobs": "\(load.waiters.count)",
          "seconds": "\((moment - load.since).toldInSeconds)",
          "bytes": "\(load.tracker.received)",
        ])
    }
  }
}

/// When and by what it is tried whether images can be decoded, and how long a worker may take.
public struct CanaryRules: Sendable {
  /// Between two looks.
  public var interval: Duration = .seconds(5)
  /// Nothing is tried while something was decoded so lately.
  public var quiet: Duration = .seconds(30)
  /// For the canary.
  public var patience: Duration = .seconds(15)
  /// A worker that takes longer for what it loads is stuck.
  public var longest: Duration = .seconds(300)
  /// A PNG of one grey pixel.
  public var picture: [UInt8] = [
    0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0x00, 0x00, 0x00, 0x0D, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0x3A, 0x7E, 0x9B,
    0x55, 0x00, 0x00, 0x00, 0x0A, 0x49, 0x44, 0x41, 0x54, 0x78, 0xDA, 0x63, 0x60, 0x00, 0x00, 0x00,
    0x02, 0x00, 0x01, 0xE5, 0x27, 0xDE, 0xFC, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4E, 0x44, 0xAE,
    0x42, 0x60, 0x82,
  ]

  /// The defaults.
  public init() {}
}

/// Decodes one small picture where workers do.
private actor Canary {
  nonisolated let unownedExecutor: UnownedSerialExecutor
  private let codec: any ImageCodec
  private let picture: [UInt8]
  /// It has to outlive the actor.
  private let lane: any WorkerLane

  init(on lane: any WorkerLane, codec: any ImageCodec, picture: [UInt8]) {
    self.lane = lane
    unownedExecutor = lane.asUnownedSerialExecutor()
    self.codec = codec
    self.picture = picture
  }

  /// - Returns: why it could not be; nil when it was.
  func decode() async -> String? {
    let decoder = codec.makeDecoder(limits: DecodeLimits())
    decoder.append(picture)
    decoder.end()
    do throws(CodecError) {
      while true {
        switch try decoder.step() {
        case .finished: return nil
        case .needsBytes: return "the decoder wants more than there is"
        case .header, .hasMore: break
        }
        _ = await decoder.pause()
      }
    } catch { return "\(error)" }
  }
}
