import Testing

@testable import Engine
@testable import Jobs

@Suite("Which events tell a change")
struct EventRuleTests {
  private let moment = Timestamp(milliseconds: 1_000)
  private let queued = Job(
    id: JobID(high: 1, low: 2), owner: .anonymous,
    submission: Submission(source: .url(SourceURL("http://a/")!, lowData: nil)), priority: .normal,
    tags: [], createdAt: Timestamp(milliseconds: 0))

  private func image(_ variant: SourceVariant = .regular, byte: UInt8 = 1) -> StoredImage {
    StoredImage(
      description: ImageDescription(format: .png, width: 1, height: 1),
      digest: ImageDigest(bytes: Array(repeating: byte, count: 32))!, bytes: 10, url: nil,
      variant: variant, modifiedAt: moment)
  }

  private func changed(_ job: Job, _ change: (inout Job) -> Void) -> Job {
    var job = job
    change(&job)
    return job
  }

  private var loading: Job { changed(queued) { $0.start(at: moment) } }
  private func succeeded(_ image: StoredImage) -> Job {
    changed(loading) { $0.succeed(with: image, cache: nil, at: moment, keptFor: .seconds(9)) }
  }
  private func told(_ old: Job?, _ new: Job) -> [JobEvent] {
    JobEvents(from: old, to: new).ordered(for: new, isFirst: old == nil)
  }

  @Test("the first one of a job is its phase, and then its image")
  func first() {
    #expect(told(nil, queued) == [.phase])
    #expect(told(nil, loading) == [.phase])
    #expect(told(nil, succeeded(image())) == [.phase, .image])
  }

  @Test("a phase comes before what happens in it, an end after what led there")
  func order() {
    #expect(told(queued, loading) == [.phase])
    var report = ProgressReport(of: loading)
    report.progress = Progress(completed: 5, total: 10)
    let further = changed(loading) { $0.note(report) }
    #expect(told(loading, further) == [.progress])
    #expect(told(queued, further) == [.phase, .progress])
    #expect(told(further, succeeded(image())) == [.progress, .image, .phase])
    report.previews = 1
    let shown = changed(further) { $0.note(report) }
    #expect(told(further, shown) == [.preview] && told(nil, shown) == [.phase, .preview])
    #expect(told(shown, shown) == [])
    let failed = changed(further) {
      $0.fail(.fetch(.noData), at: moment, keptFor: .seconds(9))
    }
    #expect(told(further, failed) == [.phase])
  }

  @Test("another image is one, whatever differs to a client; losing it is none")
  func images() {
    let low = succeeded(image(.lowData))
    let regular = changed(low) { $0.replaceImage(with: image(.regular), cache: nil) }
    #expect(told(low, regular) == [.image])
    let other = changed(low) { $0.replaceImage(with: image(.lowData, byte: 2), cache: nil) }
    #expect(told(low, other) == [.image])
    #expect(told(low, changed(low) { $0.loseImage() }) == [])
  }

  @Test("labels and priority are told by none")
  func edits() {
    #expect(told(queued, changed(queued) { _ = $0.edit(priority: .high, tags: ["x"]) }) == [])
  }

  @Test("a second end is told as one, although nobody looked in between")
  func again() {
    let failed = changed(loading) { $0.fail(.fetch(.noData), at: moment, keptFor: .seconds(9)) }
    let again = changed(failed) { job in
      _ = job.fetchAgain(at: moment, from: .regular)
      job.start(at: moment)
      job.fail(.fetch(.noData), at: moment + .seconds(1), keptFor: .seconds(9))
    }
    #expect(told(failed, again) == [.phase])
  }

  @Test("several changes told at once are told by all their events, as the newest of them")
  func merged() {
    let low = succeeded(image(.lowData))
    let regular = changed(low) { $0.replaceImage(with: image(), cache: nil) }
    var changes = Change(snapshot: JobSnapshot(regular), events: JobEvents(from: low, to: regular))
    changes.merge(Change(snapshot: JobSnapshot(low), events: JobEvents(from: loading, to: low)))
    #expect(changes.snapshot.job == regular)
    #expect(changes.events.ordered(for: regular, isFirst: false) == [.progress, .image, .phase])
  }

  @Test("nothing more is to come of a finished job but of one whose low-data image is replaced")
  func settled() {
    var saving = queued.submission
    saving.savesData = true
    let saver = Job(
      id: queued.id, owner: .anonymous, submission: saving, priority: .normal, tags: [],
      createdAt: moment)
    let saved = changed(saver) { job in
      job.start(at: moment)
      job.succeed(with: image(.lowData), cache: nil, at: moment, keptFor: .seconds(9))
    }
    #expect(saved.isFinal)
    #expect(changed(succeeded(image(.lowData))) { $0.loseImage() }.isFinal)
    #expect(!queued.isFinal && !loading.isFinal && !succeeded(image(.lowData)).isFinal)
    #expect(succeeded(image()).isFinal)
    #expect(changed(queued) { _ = $0.cancel(at: moment, keptFor: .zero) }.isFinal)
  }
}
