import TestSupport
import Testing

@testable import Jobs

@Suite("A job's snapshot")
struct JobSnapshotTests {
  private static let text = String(repeating: "x", count: 8_000)
  private static let url = SourceURL("http://a.example/\(text)")!  // legal
  private static let short = SourceURL("http://a.example/")!  // legal
  private static let moment = Timestamp(milliseconds: 1_700_000_000_000)

  private static func job(
    tags: [String] = [], _ adjust: (inout Submission) -> Void = { _ in }
  ) -> Job {
    var submission = Submission(source: .url(short, lowData: nil))
    adjust(&submission)
    return Job(
      id: JobID(high: 1, low: 1), owner: .anonymous, submission: submission, priority: .normal,
      tags: tags, createdAt: moment)
  }

  private static func loading(_ change: (inout Job) -> Void) -> Job {
    var job = job()
    job.start(at: moment)
    change(&job)
    return job
  }

  @Test("a snapshot weighs one if its job has only URLs of usual length")
  func usual() {
    let url = SourceURL("http://a.example/" + String(repeating: "x", count: 300))!  // legal
    let job = Self.job { $0.source = .url(url, lowData: nil) }
    #expect(JobSnapshot(job).weight == 1)
  }

  /// Members that clients do not see, each of 8 kB.
  private static var asked: [(member: String, change: (inout Submission) -> Void)] {
    let fields = [HeaderField(name: "a", value: text)]
    let key = DeliveryKey(String(text.prefix(1_000)))!  // legal
    func delivery(_ target: DeliveryRequest.Target, of variant: String? = nil) -> DeliveryRequest {
      DeliveryRequest(target, variant: variant)
    }
    return [
      ("cache_key", { $0.cacheKey = text }), ("headers", { $0.headers = fields }),
      ("alternatives", { $0.alternatives = [url] }),
      ("notify", { $0.webhook = Webhook(url: url, events: WebhookEvent.jobEnds) }),
      ("put", { $0.deliveries = [delivery(.put(url, headers: []))] }),
      ("headers of put", { $0.deliveries = [delivery(.put(short, headers: fields))] }),
      (
        "key", { $0.deliveries = Array(repeating: delivery(.profile("shop", key: key)), count: 8) }
      ),
      ("to", { $0.deliveries = [delivery(.profile(text, key: key))] }),
      ("what", { $0.deliveries = [delivery(.profile("shop", key: key), of: text)] }),
      ("variants", { $0.variants = [VariantRequest(name: text)] }),
      ("hosts", { $0.hosts = [HostSpelling(given: text, one: "a")] }),
    ]
  }

  @Test("a snapshot weighs every long member of its submission")
  func submission() {
    for (member, change) in Self.asked {
      let job = Self.job(change)
      #expect(JobSnapshot(job).weight >= 1 + 8_000 / JobSnapshot.usualBytes, "\(member)")
    }
  }

  /// Jobs whose visible members have 8 kB.
  private static func told() -> [(member: String, job: Job)] {
    let image = StoredImage(
      description: ImageDescription(format: .jpeg, width: 3, height: 2),
      digest: ImageDigest(of: [1]), bytes: 1, url: nil, variant: .regular, modifiedAt: moment)
    func succeeded(_ image: StoredImage, _ deliveries: [Delivered] = []) -> Job {
      loading {
        $0.succeed(
          with: image, cache: nil, deliveries: deliveries, at: moment, keptFor: .seconds(9))
      }
    }
    var (fromURL, varied) = (image, image)
    fromURL.url = url
    let rendition = Rendition(of: image, as: Variant(format: .jpeg), by: FakeRenderer())
    let made = MadeVariant("a", rendition, RenderedBytes([1]))
    varied.variants = Array(repeating: made, count: 8_000 / 256 + 1)
    let put = DeliveryRequest(.put(url, headers: []), variant: nil)
    let profile = DeliveryRequest(.profile("a", key: DeliveryKey(forVariant: false)), variant: nil)
    let failure = JobFailure.fetch(.unsupportedCoding(text))
    return [
      ("url", job { $0.source = .url(url, lowData: nil) }),
      ("low_data_url", job { $0.source = .url(short, lowData: url) }),
      ("tags", job(tags: [text])),
      ("image", succeeded(fromURL)), ("made variants", succeeded(varied)),
      (
        "delivered to a URL",
        succeeded(image, [Delivered(put, key: nil, bytes: 1, entityTag: nil)])
      ),
      ("delivered", succeeded(image, [Delivered(profile, key: text, bytes: 1, entityTag: nil)])),
      ("entity tag", succeeded(image, [Delivered(profile, key: "a", bytes: 1, entityTag: text)])),
      ("error", loading { $0.fail(failure, at: moment, keptFor: .seconds(9)) }),
      ("last_error", loading { $0.retry(after: failure, from: .regular, notBefore: moment) }),
    ]
  }

  @Test("a snapshot counts visible members twice, because its encoding repeats them")
  func result() {
    for (member, job) in Self.told() {
      #expect(JobSnapshot(job).weight >= 1 + 16_000 / JobSnapshot.usualBytes, "\(member)")
    }
  }
}
