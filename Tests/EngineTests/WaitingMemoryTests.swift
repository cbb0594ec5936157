import Jobs
import Testing

@testable import Engine

@Suite("Memory for jobs that wait for loads")
struct WaitingMemoryTests {
  private static let moment = Timestamp(milliseconds: 1_800_000_000_000)

  private static func job(
    by owner: String = "anna", headerBytes: Int = 0, over defaults: SharedDefaults? = nil
  ) -> Job {
    var submission = defaults?.submission ?? Self.submission(headerBytes: headerBytes)
    submission.defaults = defaults
    return Job(
      id: JobID(at: moment), owner: Owner(owner), submission: submission, priority: .normal,
      tags: [], createdAt: moment)
  }

  private static func submission(headerBytes: Int) -> Submission {
    var submission = Submission(source: .url(SourceURL("https://a.example/x")!, lowData: nil))
    submission.headers = [
      HeaderField(name: "x-long", value: String(repeating: "a", count: headerBytes))
    ]
    return submission
  }

  /// Takes memory for copies of the job until none is left.
  private static func fill(_ memory: inout WaitingMemory, _ job: Job) -> [WaitingMemory.Part] {
    var parts: [WaitingMemory.Part] = []
    while let part = memory.reserve(job, at: moment) { parts.append(part) }
    return parts
  }

  @Test("the memory is enough for thousands of short jobs or hundreds of long ones")
  func weights() {
    var memory = WaitingMemory()
    let short = Self.fill(&memory, Self.job())
    #expect(short.count > 9_000 && short.count < 12_000)
    #expect(memory.remainingJobs == 0)
    for part in short { memory.release(part) }
    let long = Self.fill(&memory, Self.job(headerBytes: 64_000))
    #expect(long.count > 800 && long.count < 1_000)
  }

  @Test("defaults shared by lines of a batch count once, until the last line is released")
  func shared() {
    var memory = WaitingMemory()
    let defaults = (0..<2).map { _ in
      SharedDefaults(Self.submission(headerBytes: 1_000_000), tags: [])
    }
    var parts = [memory.reserveUnchecked(Self.job(over: defaults[0]))]
    let places = memory.remainingJobs
    parts.append(memory.reserveUnchecked(Self.job(over: defaults[0])))
    #expect(memory.remainingJobs == places - 1)
    parts.append(memory.reserveUnchecked(Self.job(over: defaults[1])))
    #expect(memory.remainingJobs < places - 150)
    for part in parts { memory.release(part) }
    #expect(memory.remainingJobs == WaitingMemory().remainingJobs)
  }

  @Test("one owner gets at most half of the memory while another one asks for some")
  func owners() {
    var memory = WaitingMemory()
    let first = Self.fill(&memory, Self.job())
    #expect(memory.reserve(Self.job(by: "bert"), at: Self.moment) == nil)
    for part in first.dropFirst(first.count / 4) { memory.release(part) }
    let again = Self.fill(&memory, Self.job())
    #expect(abs(again.count - first.count / 4) <= 1)
    #expect(Self.fill(&memory, Self.job(by: "bert")).count >= first.count / 2 - 1)
  }
}
