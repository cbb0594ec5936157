import Foundation
import Isolation
import Jobs
import TestSupport
import Testing

@Suite(
  "A storm of images that crash their decoders", .serialized,
  .disabled(if: Sanitizer.isOfThreads, "no decoder was seen to start beside it")
)
struct CrashStormTests {
  private static let storm = Corpora.isLong ? 1_000 : 600

  @Test("costs the images beside it nothing but a part of the machine")
  func crashes() async throws {
    let (service, hostile) = (IsolatedCodec(), IsolatedCodec.hostile { $0.patience = .seconds(1) })
    let photo = Fixtures.jpeg
    // What the storm is compared with: as many images that are decoded.
    let calm = await Self.times(of: photo, by: service) {
      #expect(Decoding(Fixtures.smallJPEG, by: service).error == nil)
    }
    let rough = await Self.times(of: photo, by: service) {
      let crash = Decoding(Self.bytes("crash"), by: hostile).error
      guard case .crashed(let how) = crash else { Issue.record("\(crash as Any)"); return }
      #expect(how.hasPrefix("signal 11"))
    }
    print("p99 beside good images \(calm), beside crashing ones \(rough)")
    // Loose: other tests take their part, too. Benchmarks/README.md has what a quiet machine measures.
    #expect(rough < calm * 5 + .milliseconds(100))
  }

  @Test("with some that hang is over when those have had their time")
  func hangs() async {
    let (service, hostile) = (IsolatedCodec(), IsolatedCodec.hostile { $0.patience = .seconds(1) })
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

  /// The 99th percentile of an image's decoding, of which one comes with every fifth of the others.
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
