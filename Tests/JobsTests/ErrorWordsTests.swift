import Testing

@testable import Jobs

@Suite("An error, in the operator's log")
struct ErrorWordsTests {
  private static let errors: [any Error] = [
    StoreError.full, StoreError.unavailable(detail: "syncing an image: Input/output error"),
    LocalImageError.notFound, LocalImageError.outside, LocalImageError.notAFile,
    LocalImageError.unavailable(detail: "Permission denied"), JobsError.unknownJob,
    JobsError.queueFull, JobsError.keyReused, JobsError.invalidLocalNames([1]),
    JobsError.versionDiffers, JobsError.imageGone, JobsError.renderingsFull,
    JobsError.unrenderable(.cutShort), JobsError.abandoned, JobsError.starting, JobsError.draining,
    JobsError.store(.full),
  ]

  @Test("is words, and no case of Swift's", arguments: errors.map { "\($0)" })
  func words(_ text: String) {
    #expect(text.contains(" "))
    #expect(text.wholeMatch(of: #/[^()"]+/#) != nil)
  }

  @Test("tells what the store tells")
  func details() {
    #expect("\(StoreError.unavailable(detail: "disk on fire"))" == "disk on fire")
    #expect("\(JobsError.store(.unavailable(detail: "disk on fire")))" == "disk on fire")
    #expect("\(JobsError.unrenderable(.cutShort))".hasSuffix("decode_failed"))
  }
}
