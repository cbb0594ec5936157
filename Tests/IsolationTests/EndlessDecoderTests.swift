import Isolation
import Jobs
import TestSupport
import Testing

@Suite(
  "A decoder that never ends",
  .disabled(if: Sanitizer.isOfThreads, "decoders could not start under ThreadSanitizer"),
  .timeLimit(.minutes(15))
)
struct EndlessDecoderTests {
  private static let endless = Array("compute".utf8) + [UInt8](repeating: 0, count: 64)

  /// No limit ends the decoder here, because the test measures its cost. Several of them wait for a core longer than
  /// `patience`.
  private static func codec() -> IsolatedCodec {
    .hostile {
      ($0.maxTime, $0.longestStep) = (.seconds(3_600), .seconds(3_600))
      $0.replyTimeout = .milliseconds(5)
    }
  }

  @Test("a step does not wait for an endless decoder once its priority was lowered")
  func looks() async throws {
    let decoder = Self.codec().makeDecoder(limits: DecodeLimits())
    decoder.append(Self.endless)
    decoder.finishInput()
    var looks: [Duration] = []
    var elsewhere = Duration.zero
    while looks.count < 40 {
      let start = ContinuousClock.now
      #expect(try decoder.step() == .hasMore)
      if elsewhere > .zero { looks.append(ContinuousClock.now - start) }
      elsewhere += await decoder.pause()
    }
    // A waiting step takes at least a millisecond. A step that only checks takes almost no time.
    #expect(looks.min()! < .milliseconds(1))
    #expect(elsewhere > .milliseconds(100))
  }

  @Test("a step without a pause waits for an endless decoder for a moment")
  func waiting() throws {
    let decoder = Self.codec().makeDecoder(limits: DecodeLimits())
    decoder.append(Self.endless)
    decoder.finishInput()
    let (start, steps) = (ContinuousClock.now, 300)
    for _ in 0..<steps { #expect(try decoder.step() == .hasMore) }
    #expect(ContinuousClock.now - start > .milliseconds(steps / 2))
  }

  @Test(
    "endless decoders leave their thread to others, even if there are more than threads")
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
      // If steps waited, they would use all of the time.
      let held = await thread.held
      print("eight endless decoders held their thread for \(held) of \(all)")
      #expect(held < all / 2)
      group.cancelAll()
    }
  }
}

/// Decodes all images in turn on one thread, like the engine.
private actor OneThread {
  /// How many decoders have lowered priority, how often they were checked, and how long the checks took.
  private(set) var (away, looks, held) = (0, 0, Duration.zero)

  func startCounting() { (looks, held) = (0, .zero) }

  /// - Returns: the error; nil if the image was decoded or the task was cancelled.
  func decode(_ bytes: [UInt8], by codec: IsolatedCodec) async -> CodecError? {
    let decoder = codec.makeDecoder(limits: DecodeLimits())
    decoder.append(bytes)
    decoder.finishInput()
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
