import Testing

@testable import Engine
@testable import Jobs

@Suite("The events of a change")
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
  private func events(_ old: Job?, _ new: Job) -> [JobEvent] {
    JobEvents(from: old, to: new).ordered(for: new, isFirst: old == nil)
  }

  @Test("the first events of a job are its phase and then its image")
  func first() {
    #expect(events(nil, queued) == [.phase])
    #expect(events(nil, loading) == [.phase])
    #expect(events(nil, succeeded(image())) == [.phase, .image])
  }

  @Test("a new phase comes before its progress, and an end after the events that led to it")
  func order() {
    #expect(events(queued, loading) == [.phase])
    var report = ProgressReport(of: loading)
    report.progress = Progress(completed: 5, total: 10)
    let further = changed(loading) { $0.applyReport(report) }
    #expect(events(loading, further) == [.progress])
    #expect(events(queued, further) == [.phase, .progress])
    #expect(events(further, succeeded(image())) == [.progress, .image, .phase])
    report.previews = 1
    let shown = changed(further) { $0.applyReport(report) }
    #expect(events(further, shown) == [.preview] && events(nil, shown) == [.phase, .preview])
    #expect(events(shown, shown) == [])
    let failed = changed(further) {
      $0.fail(.fetch(.noData), at: moment, keptFor: .seconds(9))
    }
    #expect(events(further, failed) == [.phase])
  }

  @Test("a replaced image is an event, a lost one is not")
  func images() {
    let low = succeeded(image(.lowData))
    let regular = changed(low) { $0.replaceImage(with: image(.regular), cache: nil) }
    #expect(events(low, regular) == [.image])
    let other = changed(low) { $0.replaceImage(with: image(.lowData, byte: 2), cache: nil) }
    #expect(events(low, other) == [.image])
    #expect(events(low, changed(low) { $0.markImageEvicted() }) == [])
  }

  @Test("edited tags and priorities are no events")
  func edits() {
    #expect(events(queued, changed(queued) { _ = $0.edit(priority: .high, tags: ["x"]) }) == [])
  }

  @Test("a second end is an event although the states in between were not seen")
  func again() {
    let failed = changed(loading) { $0.fail(.fetch(.noData), at: moment, keptFor: .seconds(9)) }
    let again = changed(failed) { job in
      _ = job.fetchAgain(at: moment, from: .regular)
      job.start(at: moment)
      job.fail(.fetch(.noData), at: moment + .seconds(1), keptFor: .seconds(9))
    }
    #expect(events(failed, again) == [.phase])
  }

  @Test("merged changes have all their events and the newest state")
  func merged() {
    let low = succeeded(image(.lowData))
    let regular = changed(low) { $0.replaceImage(with: image(), cache: nil) }
    var changes = Change(snapshot: JobSnapshot(regular), events: JobEvents(from: low, to: regular))
    changes.merge(Change(snapshot: JobSnapshot(low), events: JobEvents(from: loading, to: low)))
    #expect(changes.snapshot.job == regular)
    #expect(changes.events.ordered(for: regular, isFirst: false) == [.progress, .image, .phase])
  }

  @Test("a finished job is final unless its low-data image will be replaced")
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
    #expect(changed(succeeded(image(.lowData))) { $0.markImageEvicted() }.isFinal)
    #expect(!queued.isFinal && !loading.isFinal && !succeeded(image(.lowData)).isFinal)
    #expect(succeeded(image()).isFinal)
    #expect(changed(queued) { _ = $0.cancel(at: moment, keptFor: .zero) }.isFinal)
  }
}
