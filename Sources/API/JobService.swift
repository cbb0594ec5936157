public import Jobs

/// What the API needs of the job engine.
///
/// Wherever a caller is given, another owner's job is as unknown as one that never was.
public protocol JobService: BatchService {
  /// The job from memory, without waiting; nil: ask ``job(_:for:)``.
  func peek(_ id: JobID, for caller: Caller) -> JobSnapshot?

  /// The job.
  func job(_ id: JobID, for caller: Caller) async throws(JobsError) -> JobSnapshot

  /// Why a queued job does not run, as far as memory tells; nil in any other phase.
  func waiting(of job: Job) -> WaitingFor?

  /// Accepts jobs, all or none, durably: in the order given. With the key of an earlier submission: that one's jobs.
  func submit(_ jobs: [NewJob], by caller: Caller, key: IdempotencyKey?)
    async throws(JobsError) -> [SubmittedJob]

  /// The job that answers a view, once it has finished or the time is over: the one that was given to others who asked
  /// the same, or a new one. It belongs to ``Owner/view``, and is cancelled when all who wait for it have left.
  func view(_ job: NewJob, atMost limit: Duration) async throws(JobsError) -> JobSnapshot

  /// Room for an image that a client is about to send, out of its owner's share.
  func beginCapture(by owner: Owner) async throws(JobsError) -> any ImageCapture

  /// Accepts a job over a finished capture, and makes its bytes durable with it. `job`'s source is
  /// the captured image that ``ImageCapture/finish()`` told.
  func submit(
    captured capture: any ImageCapture, as job: NewJob, by caller: Caller, key: IdempotencyKey?
  )
    async throws(JobsError) -> SubmittedJob

  /// A part of the list of jobs.
  func jobs(_ query: JobQuery) async throws(JobsError) -> JobPage

  /// Cancels the job unless it has finished.
  ///
  /// - Parameter expected: does so only where nothing but progress came after one of these versions; nil: whatever came.
  func cancel(_ id: JobID, for caller: Caller, ifVersion expected: [Int]?)
    async throws(JobsError) -> JobSnapshot

  /// Cancels and forgets the job, its image and its kept bytes.
  func purge(_ id: JobID, for caller: Caller, ifVersion expected: [Int]?) async throws(JobsError)

  /// Changes what is not nil.
  func edit(
    _ id: JobID, for caller: Caller, priority: Priority?, tags: [String]?,
    ifVersion expected: [Int]?
  ) async throws(JobsError) -> JobSnapshot

  /// Queues the job again where there is something to fetch.
  func fetchAgain(
    _ id: JobID, for caller: Caller, ifVersion expected: [Int]?
  ) async throws(JobsError) -> JobSnapshot

  /// What is told of the job's ends, the oldest first.
  func messages(of id: JobID, for caller: Caller) async throws(JobsError) -> [WebhookMessage]

  /// Has the newest of them sent again, now; nil where there is none.
  func sendAgain(of id: JobID, for caller: Caller) async throws(JobsError) -> WebhookMessage?

  /// The job as it is when it meets the condition, or the time is over.
  func wait(_ id: JobID, for caller: Caller, until goal: WaitCondition, atMost limit: Duration)
    async throws(JobsError) -> JobSnapshot

  /// Subscribes to the job: as it is, unless it has the version `seen`, and each change until it has finished or is gone.
  ///
  /// - Parameter cancelsAtLeaving: whether an unfinished job is cancelled when the last subscription that asked for this
  ///   is let go of.
  func subscribe(to id: JobID, for caller: Caller, seen: Int?, cancelsAtLeaving: Bool)
    async throws(JobsError) -> any JobSubscription

  /// Subscribes to all jobs that the query means.
  func subscribe(_ query: SubscriptionQuery) -> any JobSubscription

  /// The image's bytes; nil when they are gone.
  func openImage(_ digest: ImageDigest) async throws(JobsError) -> StoredBytes?

  /// Moves bytes out of memory into a file, which is gone once nobody holds it.
  func file(_ bytes: [UInt8]) async throws(JobsError) -> StoredBytes

  /// The newest preview of what the job is loading; nil: there is none yet, or no more.
  func preview(of id: JobID) -> Preview?

  /// The same of a job that another instance loads; that one is told who asks.
  func previewElsewhere(of id: JobID, authorization: String?) async -> Preview?

  /// The formats that variants can be written in; none where none are made.
  var outputFormats: Set<OutputFormat> { get }

  /// What a variant of an image comes out as, without rendering it; nil where none are made.
  func rendition(of image: StoredImage, as variant: Variant) -> Rendition?

  /// The operator's picture that stands in for an image which is not there; nil: the built-in one is drawn.
  func picture(for placeholder: Placeholder) -> PlaceholderPicture?

  /// What a placeholder comes out as, without rendering it: a built-in one at the variant's width and height. Nil where
  /// nothing is rendered.
  func rendition(of placeholder: Placeholder, as variant: Variant) -> Rendition?

  /// The bytes of a rendition of the job's image, rendered now where they aren't kept: once for all who ask at the same
  /// time. A caller whose task is cancelled waits no more.
  func open(_ rendition: Rendition, for job: Job) async throws(JobsError) -> RenderedBytes

  /// The bytes of what stands in for the job's image, likewise.
  func openPlaceholder(
    _ rendition: Rendition, for job: Job
  ) async throws(JobsError) -> RenderedBytes

  /// What the cache holds.
  func cacheCounts() async throws(JobsError) -> CacheCounts

  /// Forgets what the cache has of a URL, or everything. Jobs keep their images.
  /// - Returns: how many stored responses and variants there were.
  func dropFromCache(_ url: SourceURL?) async throws(JobsError) -> Int

  /// Whether low-data images stand in for the regular ones.
  var isConstrained: Bool { get }

  /// Says that the network is constrained, or no longer is: the regular images then replace the low-data ones.
  func setConstrained(_ isConstrained: Bool) async throws(JobsError)

  /// The instances that work on the jobs, the one that leads first.
  func instances() async throws(JobsError) -> [PresentInstance]

  /// Which of them this is.
  var instance: Instance { get }

  /// The wall clock's time.
  func now() -> Timestamp

  /// Whether the service takes work.
  var state: ServiceState { get }
}
