package import Jobs

/// The job operations that the API needs from the job engine. A job of another owner is treated as unknown
/// (`.unknownJob`).
package protocol JobService: BatchService {
  /// The job from memory, without waiting. Returns nil if it is not there: use ``job(_:for:)``.
  func peek(_ id: JobID, for caller: Caller) -> JobSnapshot?

  /// Loads the job from memory or from the store.
  func job(_ id: JobID, for caller: Caller) async throws(JobsError) -> JobSnapshot

  /// Why a queued job does not run, as far as known without asking the store; nil in any other phase.
  func waiting(of job: Job) -> WaitingFor?

  /// Stores jobs durably, all or none, in the order given. If an earlier submission has the same `key`, returns its
  /// jobs.
  func submit(_ jobs: [NewJob], by caller: Caller, key: IdempotencyKey?)
    async throws(JobsError) -> [SubmittedJob]

  /// The job that answers a `GET /image`, when it has finished or `limit` has passed. Equal requests share one job.
  /// It belongs to ``Owner/view``, and is cancelled when no request waits for it.
  func view(_ job: NewJob, atMost limit: Duration) async throws(JobsError) -> JobSnapshot

  /// Prepares to receive an image that a client uploads. Its bytes count towards the owner's limits.
  func beginCapture(by owner: Owner) async throws(JobsError) -> any ImageCapture

  /// Stores a job together with an uploaded image, durably. The job's source is the image that
  /// ``ImageCapture/finish()`` returned.
  func submit(
    captured capture: any ImageCapture, as job: NewJob, by caller: Caller, key: IdempotencyKey?
  )
    async throws(JobsError) -> SubmittedJob

  /// One page of jobs.
  func jobs(_ query: JobQuery) async throws(JobsError) -> JobPage

  /// Cancels the job unless it has finished.
  ///
  /// - Parameter expected: throws `.versionDiffers` unless the job has one of these versions; changes of the progress
  ///   alone do not count. Nil: any version.
  func cancel(_ id: JobID, for caller: Caller, ifVersion expected: [Int]?)
    async throws(JobsError) -> JobSnapshot

  /// Cancels the job and deletes it with its image and variants.
  func purge(_ id: JobID, for caller: Caller, ifVersion expected: [Int]?) async throws(JobsError)

  /// Changes the priority and the tags, if not nil.
  func edit(
    _ id: JobID, for caller: Caller, priority: Priority?, tags: [String]?,
    ifVersion expected: [Int]?
  ) async throws(JobsError) -> JobSnapshot

  /// Queues the job again if there is something to fetch.
  func refetch(
    _ id: JobID, for caller: Caller, ifVersion expected: [Int]?
  ) async throws(JobsError) -> JobSnapshot

  /// The webhook messages of the job, oldest first.
  func messages(of id: JobID, for caller: Caller) async throws(JobsError) -> [WebhookMessage]

  /// Sends the newest webhook message again, now. Returns nil if there is none.
  func resendWebhook(of id: JobID, for caller: Caller) async throws(JobsError) -> WebhookMessage?

  /// Waits until the job meets the condition or `limit` has passed. Returns it then.
  func wait(_ id: JobID, for caller: Caller, until goal: WaitCondition, atMost limit: Duration)
    async throws(JobsError) -> JobSnapshot

  /// Subscribes to the job. The first event is its current state, unless it has the version `seen`. Later events are
  /// its changes, until it has finished or is deleted.
  ///
  /// - Parameter cancelsOnDisconnect: whether an unfinished job is cancelled when the last subscription with this flag
  ///   ends.
  func subscribe(to id: JobID, for caller: Caller, seen: Int?, cancelsOnDisconnect: Bool)
    async throws(JobsError) -> any JobSubscription

  /// Subscribes to all jobs that match the query.
  func subscribe(_ query: SubscriptionQuery) -> any JobSubscription

  /// The bytes of a successful job's original. Throws `.imageGone`; `.unknownJob` if the job was purged.
  func openImage(of job: Job) async throws(JobsError) -> StoredBytes

  /// Writes bytes to a temporary file, which is deleted when the result is released.
  func file(_ bytes: [UInt8]) async throws(JobsError) -> StoredBytes

  /// The newest preview of a job that this instance is loading; nil if there is none.
  func preview(of id: JobID) -> Preview?

  /// The formats that variants can be written in; empty if the service makes no variants.
  var outputFormats: Set<OutputFormat> { get }

  /// The format and size of a variant of an image, without rendering it; nil if the service makes no variants.
  func rendition(of image: StoredImage, as variant: Variant) -> Rendition?

  /// The operator's placeholder image, or the built-in one.
  func placeholderImage(for placeholder: Placeholder) -> PlaceholderImage

  /// The format and size of a variant of a placeholder, without rendering it; nil if the service makes no variants.
  func rendition(of image: PlaceholderImage, as variant: Variant) -> Rendition?

  /// The bytes of a variant of the job's image. They are rendered now if they are not cached, once for all concurrent
  /// requests. Stops waiting if the caller's task is cancelled.
  func open(_ rendition: Rendition, for job: Job) async throws(JobsError) -> RenderedBytes

  /// The bytes of a placeholder for the job's image. Otherwise like ``open(_:for:)``.
  func openPlaceholder(
    _ rendition: Rendition, for job: Job
  ) async throws(JobsError) -> RenderedBytes

  /// The size of the cache and its hits.
  func cacheCounts() async throws(JobsError) -> CacheCounts

  /// Deletes the cached responses and variants of a URL, or everything. Jobs keep their images.
  /// - Returns: the number of deleted responses and variants.
  func deleteFromCache(_ url: SourceURL?) async throws(JobsError) -> Int

  /// Whether the network is constrained, so that low-data images replace the regular ones.
  var isConstrained: Bool { get }

  /// Sets whether the network is constrained. When it no longer is, regular images replace the low-data ones.
  func setConstrained(_ isConstrained: Bool) async throws(JobsError)

  /// The running instances. The one that does the cluster's shared work is first.
  func instances() async throws(JobsError) -> [PresentInstance]

  /// This instance.
  var instance: Instance { get }

  func now() -> Timestamp

  /// Whether the service accepts jobs.
  var state: ServiceState { get }
}
