"""The carriers of messages: one `Provider` per channel, chosen by the environment, a local sandbox by default.

A provider is an object with `send(message, timeout) -> Receipt` (`tasks.providers.base`). Every variable is read when a job runs,
except that a provider's libraries and certificates are loaded when the task's module is (`tasks.providers.settings.warm`).

=========================  ====================================  =================================================================
variable                   default                               meaning
=========================  ====================================  =================================================================
FUSION_SANDBOX_URL         http://127.0.0.1:8925                 where `python -m tasks.sandbox` listens, for all `sandbox` below
FUSION_SANDBOX_SMTP        127.0.0.1:8926                        the same for e-mail
FUSION_<CHANNEL>_TIMEOUT   10 (WEBHOOK: 15)                      seconds to connect, and again for each answer; a payload's
                                                                 `timeout` goes first
HTTPS_PROXY, HTTP_PROXY,                                         as everywhere; loopback addresses never go through a proxy
NO_PROXY
SSL_CERT_FILE                                                    certificates to trust, if the system's are not the right ones

FUSION_SMS_PROVIDER        sandbox                               `sandbox`, `http` or `sns`
FUSION_SMS_URL                                                   http: where the gateway takes messages (POST)
FUSION_SMS_FORMAT          json                                  http: `json` or `form`
FUSION_SMS_FIELDS          to=to,text=text,from=from,            http: our name = the gateway's; one left out is not sent
                           reference=reference                   (Twilio: `form` and `to=To,text=Body,from=From`)
FUSION_SMS_FROM                                                  http, sns: the sender shown
FUSION_SMS_TOKEN                                                 http: sent as `Authorization: Bearer ...`
FUSION_SMS_USER, _PASSWORD                                       http: HTTP basic auth instead
FUSION_SNS_SMS_TYPE        by priority                           sns: `Transactional` or `Promotional` (LOW jobs are Promotional)
AWS_REGION, AWS_*                                                sns, ses: as boto3 reads them

FUSION_EMAIL_PROVIDER      sandbox                               `sandbox`, `smtp` or `ses`
FUSION_EMAIL_FROM          (sandbox: fusion@example.com)         sender of a payload that names none
FUSION_SMTP_HOST, _PORT    port 587 (ssl: 465, none: 25)         smtp: the server
FUSION_SMTP_SECURITY       starttls                              smtp: `starttls`, `ssl` or `none`
FUSION_SMTP_USER,                                                smtp: login, only over TLS
FUSION_SMTP_PASSWORD
FUSION_SMTP_HELO           host name, or [127.0.0.1]             smtp: the name we greet with

FUSION_PN_PROVIDER         sandbox                               `sandbox` or `fcm` (Firebase Cloud Messaging, HTTP v1)
FUSION_FCM_PROJECT         project_id of the credentials         fcm: Firebase project id
FUSION_FCM_CREDENTIALS                                           fcm: path of a service account's JSON file (needs google-auth)
FUSION_FCM_TOKEN_CACHE                                           fcm: file (mode 0600) that keeps the access token between jobs
FUSION_FCM_TOKEN                                                 fcm: a ready access token instead of credentials
FUSION_FCM_URL             https://fcm.googleapis.com            fcm: base address

FUSION_WEBHOOK_PROVIDER    sandbox                               `sandbox` (nothing leaves the machine) or `http` (really call it)

FUSION_WHATSAPP_PROVIDER   sandbox                               `sandbox` or `cloud` (WhatsApp Cloud API)
FUSION_WHATSAPP_PHONE_ID                                         cloud: id of the sending phone number
FUSION_WHATSAPP_TOKEN                                            cloud: access token
FUSION_WHATSAPP_VERSION    v23.0                                 cloud: Graph API version
FUSION_WHATSAPP_URL        https://graph.facebook.com            cloud: base address
=========================  ====================================  =================================================================

What goes wrong: `InvalidPayload` (and its `InvalidRecipient`), `ProviderRejected` and `ProviderNotConfigured` are final.
requests' `ConnectTimeout`, `ReadTimeout` and `ConnectionError`, the builtin TimeoutError (SMTP) and `ProviderUnavailable`, a builtin
ConnectionError, are what Fusion's default policy retries.
"""
