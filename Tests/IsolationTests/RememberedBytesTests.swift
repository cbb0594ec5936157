import Jobs
import Logging
import TestSupport
import Testing

@testable import Isolation

@Suite(
  "Bytes kept for a second decoder",
  .disabled(if: Sanitizer.isOfThreads, "decoders could not start under ThreadSanitizer")
)
struct RememberedBytesTests {
  private static let most = 1 << 20

  private static func pool() -> DecoderPool {
    var configuration = IsolatedCodec.Configuration()
    configuration.program = BuiltProgram.path("HostileDecoder")
    (configuration.maxIdle, configuration.maxRetainedBytes) = (1, most)
    return DecoderPool(configuration, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
  }

  /// Whether no bytes are kept.
  private static func isFree(_ pool: DecoderPool) -> Bool {
    guard pool.reserveRetained(most) else { return false }
    return pool.reserveRetained(-most)
  }

  @Test("kept bytes are released once an image has switched to a fresh decoder")
  func changed() {
    let pool = Self.pool()
    let session = DecoderSession(pool)
    #expect(session.reserveRetained(400 << 10))
    #expect(!Self.isFree(pool))
    session.switchDecoder()
    #expect(Self.isFree(pool))
    withExtendedLifetime(session) {}
  }

  @Test("kept bytes are released once an image has started again after a crash")
  func crashed() {
    let pool = Self.pool()
    func decoder(_ what: String, count: Int) -> IsolatedDecoder {
      let decoder = IsolatedDecoder(pool, limits: DecodeLimits(), variants: [])
      decoder.append(Array(what.utf8) + [UInt8](repeating: 0, count: count))
      decoder.finishInput()
      return decoder
    }
    func end(of decoder: IsolatedDecoder) -> CodecError? {
      do throws(CodecError) {
        while true { _ = try decoder.step() }
      } catch { return error }
    }
    // Ensures that the next image gets a decoder that has decoded another image.
    #expect(end(of: decoder("write", count: 64)) == .broken(format: .jpeg, detail: "denied"))
    let crash = decoder("crash", count: 400 << 10)
    guard case .crashed = end(of: crash) else {
      Issue.record("it did not crash")
      return
    }
    #expect(Self.isFree(pool))
    withExtendedLifetime(crash) {}
  }
}
