import TestSupport
import Testing

@testable import Jobs

@Suite("A query for jobs")
struct JobQueryTests {
  private func job(spelledBy fetcher: ScriptedFetcher?) -> Job {
    let url = SourceURL("http://b\u{FC}cher.example/")!  // legal
    var submission = Submission(source: .url(url, lowData: nil))
    if let fetcher { submission.spellHosts(by: fetcher) }
    return Job(
      id: JobID(high: 1, low: 1), owner: .anonymous, submission: submission, priority: .normal,
      tags: [], createdAt: Timestamp(milliseconds: 0))
  }

  @Test(
    "a query finds a job by the client's and by the fetcher's spelling of its host",
    arguments: [
      ("b\u{FC}cher.example", [true, true]), ("xn--bcher-kva.example", [true, false]),
      ("b\u{FC}cher.example.", [true, false]), ("a.example", [false, false]),
    ])
  func hosts(host: String, areFound: [Bool]) {
    let one = "xn--bcher-kva.example"
    let fetcher = ScriptedFetcher(
      spellings: ["b\u{FC}cher.example": one, "b\u{FC}cher.example.": one])
    var query = JobQuery(owner: nil, now: Timestamp(milliseconds: 0), limit: 1)
    (query.host, query.hostSpelling) = (host, fetcher.canonicalSpelling(of: host))
    let jobs = [job(spelledBy: fetcher), job(spelledBy: nil)]
    #expect(jobs.map(query.selects) == areFound)
  }
}
