import Foundation
import Isolation
import Jobs
import TestSupport
import Testing

@Suite(
  "Many images that crash their decoders", .serialized,
  .disabled(if: Sanitizer.isOfThreads, "decoders could not start under ThreadSanitizer")
)
struct CrashStormTests {
  private static let storm = Corpora.isLong ? 1_000 : 600

  @Test("images that crash their decoders only slow other images down")
  func crashes() async throws {
    let (service, hostile) = (
      IsolatedCodec(), IsolatedCodec.hostile { $0.replyTimeout = .seconds(1) }
    )
    let photo = Fixtures.jpeg
    // The comparison: the same number of images that are decoded normally.
    let calm = await Self.times(of: photo, by: service) {
      #expect(Decoding(Fixtures.smallJPEG, by: service).error == nil)
    }
    let rough = await Self.times(of: photo, by: service) {
      let crash = Decoding(Self.bytes("crash"), by: hostile).error
      guard case .crashed(let how) = crash else { Issue.record("\(crash as Any)"); return }
      #expect(how.hasPrefix("signal 11"))
    }
    print("p99 next to good images \(calm), next to crashing ones \(rough)")
    // A loose limit, because other tests run at the same time. Benchmarks/README.md has measurements on a quiet
    // machine.
    #expect(rough < calm * 5 + .milliseconds(100))
  }

  @Test("images that hang do not block other images beyond their time limit")
  func hangs() async {
    let (service, hostile) = (
      IsolatedCodec(), IsolatedCodec.hostile { $0.replyTimeout = .seconds(1) }
    )
    await withTaskGroup { group in
      for number in 0..<100 {
        group.addTask {
          if number % 10 == 0 {
            let end = Decoding(Self.bytes("say nothing"), by: hostile).error
            #expect(end == .crashed(how: "it did not respond"))
          } else {
            #expect(Decoding(Fixtures.smallJPEG, by: service).error == nil)
          }
        }
      }
    }
  }

  private static func bytes(_ attempt: String) -> [UInt8] {
    Array(attempt.utf8) + [UInt8](repeating: 0, count: 64)
  }

  /// The 99th percentile of the time to decode `image`, which runs with every fifth call of `other`.
  private static func times(
    of image: [UInt8], by codec: IsolatedCodec, beside other: @escaping @Sendable () -> Void
  ) async -> Duration {
    await withTaskGroup { group in
      for number in 0..<storm {
        group.addTask { () -> Duration? in
          other()
          guard number % 5 == 0 else { return nil }
          let start = ContinuousClock.now
          #expect(Decoding(image, by: codec).error == nil)
          return ContinuousClock.now - start
        }
      }
      var times: [Duration] = []
      for await case let time? in group { times.append(time) }
      return times.sorted()[times.count * 99 / 100]
    }
  }
}
