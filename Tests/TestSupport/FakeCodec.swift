internal import Glibc
package import Jobs
internal import Synchronization

/// A codec that accepts bytes that start with `ok` as an image and rejects all others. Bytes with `cut` must also contain `end`.
package final class FakeCodec: ImageCodec {
  private let decoders = Atomic(0)
  private let state = State()

  /// The settings and counters that all decoders share.
  private final class State: Sendable {
    let crashes = Atomic(false)
    let hangs = Atomic(false)
    let isElsewhere = Atomic(false)
    let losesBytes = Atomic(false)
    let memory = Atomic(1000)
    let headerAt = Atomic(2)
    let held = Atomic(0)
    let decoded = Mutex<[[UInt8]]>([])
  }

  package init() {}

  /// The number of decoders that received bytes.
  package var begun: Int { decoders.load(ordering: .relaxed) }

  /// The bytes of the decoders that finished, in the order in which they finished.
  package var decoded: [[UInt8]] { state.decoded.withLock { $0 } }

  /// Sets the memory that headers state.
  package func needs(memory: Int) { state.memory.store(memory, ordering: .relaxed) }

  /// Sets after how many bytes headers are reported. Shorter images report them at their end.
  package func headerComes(after count: Int) { state.headerAt.store(count, ordering: .relaxed) }

  /// Bytes of decoders that are still retained.
  package var held: Int { state.held.load(ordering: .relaxed) }

  /// Sets whether each step of a decoder crashes.
  package func crashes(_ crashes: Bool) { state.crashes.store(crashes, ordering: .relaxed) }

  /// Sets whether decoders never finish.
  package func hangs(_ hangs: Bool) { state.hangs.store(hangs, ordering: .relaxed) }

  /// Sets whether each decoder pauses five times for 100 ms, as if it computed elsewhere. If the caller does not wait, the decoder
  /// reports a crash.
  package func isElsewhere(_ isElsewhere: Bool) {
    state.isElsewhere.store(isElsewhere, ordering: .relaxed)
  }

  /// Sets whether each decoder loses its bytes once, after the header.
  package func losesBytes(_ losesBytes: Bool) {
    state.losesBytes.store(losesBytes, ordering: .relaxed)
  }

  package func makeDecoder(limits: DecodeLimits, variants: [VariantRequest]) -> any ImageDecoder {
    decoders.add(1, ordering: .relaxed)
    return Decoder(limits: limits, state)
  }

  private final class Decoder: ImageDecoder {
    private let limits: DecodeLimits
    private let state: State
    private var bytes: [UInt8] = []
    private var isEnded = false
    private var hasHeader = false
    private var hasLostBytes = false
    private var (looks, pauses) = (0, 0)

    init(limits: DecodeLimits, _ state: State) { (self.limits, self.state) = (limits, state) }

    deinit { state.held.subtract(bytes.count, ordering: .relaxed) }

    func append(_ bytes: [UInt8]) {
      self.bytes += bytes
      state.held.add(bytes.count, ordering: .relaxed)
    }

    func finishInput() { isEnded = true }

    func pause() async -> Duration {
      await Task.yield()
      pauses += 1
      return state.isElsewhere.load(ordering: .relaxed) ? .milliseconds(100) : .zero
    }

    func step() throws(CodecError) -> DecodeStep {
      if state.crashes.load(ordering: .relaxed) { throw .crashed(how: "as the test requested") }
      if state.hangs.load(ordering: .relaxed) {
        // A short pause that leaves the core to other threads. The test needs a step that never ends.
        usleep(1_000)
        return .hasMore
      }
      guard bytes.count >= 2 || isEnded else { return .needsBytes }
      guard bytes.starts(with: Array("ok".utf8)) else {
        throw .broken(format: .png, detail: "not ok")
      }
      if !hasHeader {
        guard bytes.count >= state.headerAt.load(ordering: .relaxed) || isEnded else {
          return .needsBytes
        }
        hasHeader = true
        guard limits.maxPixels >= 100 else {
          throw .tooManyPixels(width: 10, height: 10, limit: limits.maxPixels)
        }
        let memory = state.memory.load(ordering: .relaxed)
        return .header(
          ImageHeader(format: .png, width: 10, height: 10, decodingMemory: memory))
      }
      if state.losesBytes.load(ordering: .relaxed), !hasLostBytes {
        state.held.subtract(bytes.count, ordering: .relaxed)
        (bytes, isEnded, hasLostBytes) = ([], false, true)
        return .again
      }
      guard isEnded else { return .needsBytes }
      if state.isElsewhere.load(ordering: .relaxed), looks < 5 {
        guard looks == pauses else { throw .crashed(how: "it was not left alone") }
        looks += 1
        return .hasMore
      }
      state.decoded.withLock { $0.append(bytes) }
      return .finished(ImageDescription(format: .png, width: 10, height: 10))
    }
  }
}
