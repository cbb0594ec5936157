internal import Jobs
internal import Logging
internal import Metrics
internal import Synchronization

/// Checks whether images can be decoded: by the last decoded image, or if there was none for a while, by decoding a
/// test image (the canary).
///
/// An open port proves little: it stays open while all decode threads hang or no decoder process can be started. So
/// `GET /readyz` reports this state. The canary is a tiny PNG that is decoded like any other image: on the worker
/// threads, by a decoder of the codec.
final class DecodeHealth: Sendable {
  private struct State {
    /// Time when the current canary was started; nil: none is being decoded.
    var canarySince: ContinuousClock.Instant?
    var isFailing = false
  }

  private let rules: CanaryRules
  private let canary: Canary
  private let loads: Loads
  private let lastDecode: LastDecode
  private let log: Logger
  private let state = Mutex(State())
  /// The jobs of loads that were logged as stuck.
  private let loggedAsStuck = Mutex<Set<JobID>>([])
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
      on: threads.workerLane(at: .veryHigh), codec: codec, picture: rules.image)
    canaries.increment(by: 0)
  }

  /// Whether decoding fails: neither an image nor the canary was decoded for a while.
  var isFailing: Bool { state.withLock { $0.isFailing } }

  /// Checks at an interval until cancelled.
  func run(now: WallClock) async {
    while (try? await Task.sleep(for: rules.interval)) != nil {
      logStuckLoads(at: now())
      check()
    }
  }

  private func check() {
    let moment = ContinuousClock.now
    let (isDue, isLate) = state.withLock { state -> (Bool, Bool) in
      if let since = state.canarySince { return (false, since + rules.timeout <= moment) }
      guard lastDecode.moment + rules.quiet <= moment || state.isFailing else {
        return (false, false)
      }
      state.canarySince = moment
      return (true, false)
    }
    if isLate { record(failure: "test image not decoded within \(rules.timeout.roundedSeconds) s") }
    guard isDue else { return }
    canaries.increment()
    // A detached task: if the threads hang it never ends, and stopping the service must not wait for it.
    Task { [self] in
      let fault = await canary.decode()
      state.withLock { $0.canarySince = nil }
      if fault == nil { lastDecode.record() }
      record(failure: fault)
    }
  }

  private func record(failure fault: String?) {
    let was = state.withLock { state in
      defer { state.isFailing = fault != nil }
      return state.isFailing
    }
    if let fault, !was {
      log.error(
        "images can't be decoded, /readyz fails until they can",
        metadata: ["error": "\(fault)"])
    } else if fault == nil, was {
      log.notice("images are decoded again")
    }
  }

  // MARK: Workers

  /// Loads that run longer than ``CanaryRules/maxLoadTime``.
  func stuck(at moment: Timestamp) -> [Load] {
    loads.all.filter { moment - $0.since > rules.maxLoadTime }
  }

  /// Logs each stuck load once.
  private func logStuckLoads(at moment: Timestamp) {
    let stuck = stuck(at: moment)
    let known = loggedAsStuck.withLock { told in
      defer { told = Set(stuck.map(\.leader.id)) }
      return told
    }
    for load in stuck where !known.contains(load.leader.id) {
      log.error(
        "a worker is stuck",
        metadata: [
          "job": "\(load.leader.id)", "jobs": "\(load.waiters.count)",
          "seconds": "\((moment - load.since).roundedSeconds)",
          "bytes": "\(load.tracker.received)",
        ])
    }
  }
}

/// When and how it is checked whether images can be decoded, and how long a load may take.
struct CanaryRules: Sendable {
  /// Time between two checks.
  var interval: Duration = .seconds(5)
  /// No canary is decoded if an image was decoded within this time.
  var quiet: Duration = .seconds(30)
  /// Time limit for decoding the canary.
  var timeout: Duration = .seconds(15)
  /// A load that takes longer is stuck.
  var maxLoadTime: Duration = .seconds(300)
  /// The canary: a PNG of one grey pixel.
  var image: [UInt8] = [
    0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0x00, 0x00, 0x00, 0x0D, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0x3A, 0x7E, 0x9B,
    0x55, 0x00, 0x00, 0x00, 0x0A, 0x49, 0x44, 0x41, 0x54, 0x78, 0xDA, 0x63, 0x60, 0x00, 0x00, 0x00,
    0x02, 0x00, 0x01, 0xE5, 0x27, 0xDE, 0xFC, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4E, 0x44, 0xAE,
    0x42, 0x60, 0x82,
  ]
}

/// Decodes the canary on a worker's thread.
private actor Canary {
  nonisolated let unownedExecutor: UnownedSerialExecutor
  private let codec: any ImageCodec
  private let picture: [UInt8]
  /// The lane has to outlive the actor.
  private let lane: any WorkerLane

  init(on lane: any WorkerLane, codec: any ImageCodec, picture: [UInt8]) {
    self.lane = lane
    unownedExecutor = lane.asUnownedSerialExecutor()
    self.codec = codec
    self.picture = picture
  }

  /// - Returns: the error; nil if the image was decoded.
  func decode() async -> String? {
    let decoder = codec.makeDecoder(limits: DecodeLimits())
    decoder.append(picture)
    decoder.finishInput()
    do throws(CodecError) {
      while true {
        switch try decoder.step() {
        case .finished: return nil
        case .needsBytes: return "the decoder asked for more bytes than the test image has"
        case .again:
          decoder.append(picture)
          decoder.finishInput()
        case .header, .hasMore: break
        }
        _ = await decoder.pause()
      }
    } catch { return "\(error)" }
  }
}
