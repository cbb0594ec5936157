import Isolation
import Jobs
import TestSupport
import Testing

@Suite(
  "A decoder that goes on for ever",
  .disabled(if: Sanitizer.isOfThreads, "no decoder was seen to start beside it"),
  .timeLimit(.minutes(5))
)
struct EndlessDecoderTests {
  private static let endless = Array("compute".utf8) + [UInt8](repeating: 0, count: 64)

  /// Nothing ends it here: what is tried is what it costs until then. More of them than there are cores wait for a core for
  /// longer than this patience.
  private static func codec() -> IsolatedCodec {
    .hostile {
      ($0.maxTime, $0.longestStep) = (.seconds(3_600), .seconds(3_600))
      $0.patience = .milliseconds(5)
    }
  }

  @Test("is looked after, not waited for, once others go before it")
  func looks() async throws {
    let decoder = Self.codec().makeDecoder(limits: DecodeLimits())
    decoder.append(Self.endless)
    decoder.end()
    var looks: [Duration] = []
    var elsewhere = Duration.zero
    while looks.count < 40 {
      let start = ContinuousClock.now
      #expect(try decoder.step() == .hasMore)
      if elsewhere > .zero { looks.append(ContinuousClock.now - start) }
      elsewhere += await decoder.pause()
    }
    // Whoever waits does so for a millisecond each time, at the least; whoever looks is kept only by what others compute.
    #expect(looks.min()! < .milliseconds(1))
    #expect(elsewhere > .milliseconds(100))
  }

  @Test("whoever does not pause between two looks waits for a moment")
  func waiting() throws {
    let decoder = Self.codec().makeDecoder(limits: DecodeLimits())
    decoder.append(Self.endless)
    decoder.end()
    let (start, steps) = (ContinuousClock.now, 300)
    for _ in 0..<steps { #expect(try decoder.step() == .hasMore) }
    #expect(ContinuousClock.now - start > .milliseconds(steps / 2))
  }

  @Test(
    "leaves its thread to others, also where more of them go on for ever than there are threads")
  func threads() async throws {
    let (hostile, service, thread) = (Self.codec(), IsolatedCodec(), OneThread())
    await withTaskGroup { group in
      for _ in 0..<8 { group.addTask { await thread.decode(Self.endless, by: hostile) } }
      while await thread.away < 8 { try? await Task.sleep(for: .milliseconds(10)) }
      await thread.startCounting()
      let start = ContinuousClock.now
      for _ in 0..<5 { #expect(await thread.decode(Fixtures.smallJPEG, by: service) == nil) }
      while await thread.looks < 100 { try? await Task.sleep(for: .milliseconds(10)) }
      let all = ContinuousClock.now - start
      // They took all of it when they were waited for.
      let held = await thread.held
      print("eight endless decoders held their thread for \(held) of \(all)")
      #expect(held < all / 2)
      group.cancelAll()
    }
  }
}

/// Decodes as the engine does, all pictures by turns.
private actor OneThread {
  /// How many decoders were left to themselves, how often those were looked at, and how long that took.
  private(set) var (away, looks, held) = (0, 0, Duration.zero)

  func startCounting() { (looks, held) = (0, .zero) }

  /// - Returns: why it failed; nil where it was decoded, or cancelled.
  func decode(_ bytes: [UInt8], by codec: IsolatedCodec) async -> CodecError? {
    let decoder = codec.makeDecoder(limits: DecodeLimits())
    decoder.append(bytes)
    decoder.end()
    var isAway = false
    do throws(CodecError) {
      while !Task.isCancelled {
        let start = ContinuousClock.now
        let step = try decoder.step()
        if isAway {
          looks += 1
          held += ContinuousClock.now - start
        }
        if case .finished = step { return nil }
        guard await decoder.pause() > .zero, !isAway else { continue }
        isAway = true
        away += 1
      }
    } catch { return error }
    return nil
  }
}
