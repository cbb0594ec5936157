import Testing

@testable import Jobs

@Suite("Errors in the operator's log")
struct ErrorDescriptionTests {
  private static let errors: [any Error] = [
    StoreError.full, StoreError.unavailable(detail: "syncing an image: Input/output error"),
    LocalImageError.notFound, LocalImageError.outside, LocalImageError.notAFile,
    LocalImageError.unavailable(detail: "Permission denied"), JobsError.unknownJob,
    JobsError.queueFull, JobsError.tooManyBatches, JobsError.tooManyMessages, JobsError.keyReused,
    JobsError.invalidLocalNames([1]),
    JobsError.versionDiffers, JobsError.imageGone, JobsError.renderingsFull,
    JobsError.unrenderable(.cutShort), JobsError.abandoned, JobsError.starting, JobsError.draining,
    JobsError.store(.full), JobFailure.notCached, JobFailure.localNotFound(name: "cat.png"),
    JobFailure.storageFull, JobFailure.internal, JobFailure.codec(.cutShort),
    FetchError.blocked(target: "a.example", .address("10.0.0.1", name: "Private-Use")),
    FetchError.blocked(target: "a.example", .host),
    FetchError.blocked(target: "A redirect", .scheme("ftp")),
    FetchError.blocked(target: "a.example", .port(25)),
    FetchError.dnsFailure(host: "a.example", detail: "no address"),
    FetchError.unreachable(origin: "https://a.example", failures: 5, seconds: 4.5),
    FetchError.timeout(seconds: 60), FetchError.stalled(seconds: 15),
    FetchError.tooManyRedirects(limit: 5), FetchError.badRedirect(status: 302, location: nil),
    FetchError.badRedirect(status: 302, location: "ftp:…"),
    FetchError.originStatus(503, retryAfter: 3), FetchError.noData, FetchError.tooLarge(limit: 9),
    FetchError.truncated(received: 3, expected: 9),
    FetchError.truncated(received: 3, expected: nil),
    FetchError.cancelled, CodecError.unsupportedFormat(name: "PDF"),
    CodecError.unsupportedFormat(name: nil),
    CodecError.tooManyPixels(width: 9, height: 9, limit: 80),
    CodecError.dimensionTooLarge(width: 9, height: 9, limit: 8), CodecError.tooManyScans(limit: 1),
    CodecError.tooManyFrames(limit: 1), CodecError.tooMuchMemory(bytes: 9, limit: 8),
    CodecError.broken(format: .png, detail: "bad CRC"),
  ]

  @Test("an error is described in words, not as a Swift case", arguments: errors.map { "\($0)" })
  func words(_ text: String) {
    #expect(text.contains(" "))
    #expect(text.wholeMatch(of: #/[^()"]+/#) != nil)
  }

  @Test("an error's description contains the store's detail")
  func details() {
    #expect("\(StoreError.unavailable(detail: "disk on fire"))" == "disk on fire")
    #expect("\(JobsError.store(.unavailable(detail: "disk on fire")))" == "disk on fire")
    #expect("\(JobsError.unrenderable(.cutShort))".hasSuffix("decode_failed"))
  }
}
