import Testing

@testable import Jobs

@Suite("A job's tags")
struct TagTests {
  private let composed = "caf\u{E9}"
  private let decomposed = "cafe\u{301}"

  private var job: Job {
    Job(
      id: JobID(high: 1, low: 1), owner: .anonymous, submission: Submission(source: .local("x")),
      priority: .normal, tags: [composed], createdAt: Timestamp(milliseconds: 0))
  }

  @Test("tags with another encoding of a character are different, so a change saves them")
  func edited() {
    var job = self.job
    let isSame = job.edit(priority: nil, tags: [composed])
    let isOther = job.edit(priority: nil, tags: [decomposed])
    #expect(!isSame && isOther)
    #expect(job.tags.map { Array($0.utf8) } == [Array(decomposed.utf8)])
  }

  @Test("a subscription compares tags byte by byte, like a query")
  func wanted() {
    var query = SubscriptionQuery(caller: Caller(owner: .anonymous, isAdmin: true))
    query.tag = composed
    #expect(query.includes(job))
    query.tag = decomposed
    #expect(!query.includes(job))
  }
}
